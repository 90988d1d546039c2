// Is a model's folder read by its config.json, and are the weights beside it counted against it?
#include "sim/model/folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/base/message_of.h"
#include "tests/model/fixture.h"

namespace offsim::model::folder_test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::EndsWith;
using testing::IsEmpty;

class Folder : public testing::Test {
 protected:
  Folder() : path_(fs::path(testing::TempDir()) / "offsim-a-model") {
    fs::create_directories(path_);
  }
  ~Folder() override { fs::remove_all(path_); }

  void config(const std::string& name) {
    fs::copy_file(models_folder() + name + ".json", path_ / "config.json",
                  fs::copy_options::overwrite_existing);
  }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(path_ / name, std::ios::binary) << text;
  }
  void index(const std::string& metadata) {
    write("model.safetensors.index.json", "{\"metadata\": {" + metadata + "}, \"weight_map\": {}}");
  }
  // A file of which only the header is there, as the hub's is read.
  void weights(const std::string& header) {
    std::string length(8, '\0');
    length[0] = static_cast<char>(header.size() % 256);
    length[1] = static_cast<char>(header.size() / 256);
    write("model.safetensors", length + header);
  }
  Shape read(const std::string& file = "") { return read_model((path_ / file).string()); }
  std::string refusal(const std::string& file = "") {
    return message_of([&] { read(file); });
  }

  fs::path path_;
};

TEST_F(Folder, IsItsConfigAndHasItsName) {
  config("gpt2");
  EXPECT_EQ(read().name, "offsim-a-model");
  EXPECT_EQ(read().layers, 12);
  EXPECT_THAT(read().notes, IsEmpty());
}

// llama-7b-v1 has 6,738,415,616 parameters, 2 or 4 bytes each.
TEST_F(Folder, WhoseIndexAgreesSaysNothing) {
  config("llama-7b-v1");
  for (const char* metadata : {"\"total_size\": 13476831232", "\"total_size\": 26953662464",
                               "\"total_size\": 13476831232.0", "\"total_parameters\": 6738415616",
                               "\"format\": \"pt\""}) {
    index(metadata);
    EXPECT_THAT(read().notes, IsEmpty()) << metadata;
    EXPECT_THAT(read("model.safetensors.index.json").notes, IsEmpty()) << metadata;
  }
}

TEST_F(Folder, WhoseIndexIsOfAnotherModelIsWarnedAbout) {
  config("llama-7b-v1");
  index("\"total_size\": 14483464192");
  EXPECT_THAT(
      read().notes,
      ElementsAre("model.safetensors.index.json holds 14,483,464,192 bytes, and config.json "
                  "describes 6,738,415,616 parameters: is it of another model?"));
}

// qwen3-0.6b is tied, and its file holds the head apart: 596,049,920 + 151,936 x 1,024.
TEST_F(Folder, MayHoldATiedHead) {
  config("qwen3-0.6b");
  weights(R"({"__metadata__": {"format": "pt"},
    "a": {"dtype": "BF16", "shape": [751632384], "data_offsets": [0, 1503264768]}})");
  EXPECT_THAT(read().notes, IsEmpty());
  weights(R"({"a": {"dtype": "BF16", "shape": [751632383], "data_offsets": [0, 2]}})");
  EXPECT_EQ(read().notes.size(), 1U);
}

// gpt2: 12 masks of 1024 x 1024 beside 124,439,808 parameters.
TEST_F(Folder, MayHoldMasks) {
  config("gpt2");
  weights(R"({"a": {"dtype": "F32", "shape": [137022720], "data_offsets": [0, 0]}})");
  EXPECT_THAT(read().notes, IsEmpty());
}

TEST_F(Folder, OfAQuantisedCheckpointIsNotCompared) {
  config("gpt-oss-20b");
  index("\"total_size\": 13761264768");
  EXPECT_THAT(read().notes, IsEmpty());
}

TEST_F(Folder, WithoutAConfigSaysWhatItHolds) {
  EXPECT_THAT(refusal(), EndsWith("there is no config.json in this folder; expected a folder of a "
                                  "model, as the hub stores it"));
  write("params.json", "{}");
  EXPECT_THAT(refusal(), EndsWith("this folder holds params.json of the original Llama release; "
                                  "expected a Hugging Face config.json"));
  write("model_index.json", "{}");
  EXPECT_THAT(refusal(),
              EndsWith("this folder holds a diffusion model; expected a language model"));
  write("adapter_config.json", R"({"base_model_name_or_path": "meta-llama/Llama-2-7b-hf"})");
  EXPECT_THAT(refusal(), EndsWith("this folder holds an adapter alone; expected the folder of "
                                  "meta-llama/Llama-2-7b-hf, and --lora-rank"));
}

TEST_F(Folder, OfBrokenFilesIsRefused) {
  config("gpt2");
  weights("{");
  EXPECT_NE(refusal(), "");
  weights(R"({"a": {"dtype": "F32", "shape": [-1]}})");
  EXPECT_THAT(refusal(), testing::HasSubstr("shape is '-1'"));
  write("model.safetensors", std::string("\x64\0\0\0\0\0\0\0{}", 10));
  EXPECT_THAT(refusal(), EndsWith("the file ends within its header; expected a whole .safetensors "
                                  "file"));
  for (const std::string& bytes : {std::string(), std::string(8, '\xff'), std::string(3, 'x')}) {
    write("model.safetensors", bytes);
    EXPECT_THAT(refusal(), testing::HasSubstr("the file ends within its header"));
  }
  fs::remove(path_ / "model.safetensors");
  ASSERT_EQ(::mkfifo((path_ / "model.safetensors").c_str(), 0600), 0);
  EXPECT_EQ(read().layers, 12);  // nobody writes to it: it is not waited for
  fs::remove(path_ / "model.safetensors");
  index("\"total_size\": -5");
  EXPECT_THAT(refusal(), testing::HasSubstr("not negative"));
  index("\"total_size\": 0");
  EXPECT_THAT(refusal(), testing::HasSubstr("not a model's"));
  EXPECT_THAT(refusal("x.gguf"), EndsWith("expected a config.json, or the folder of a model"));
}

}  // namespace
}  // namespace offsim::model::folder_test
