// Does every file in models/ have exactly the parameters of the published checkpoint?
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "sim/model/tensors.h"
#include "tests/model/fixture.h"

namespace offsim::model::models_test {
namespace {

struct Model {
  const char* name;
  std::int64_t parameters;
};

// Sums over the tensors of the published checkpoints, tied heads once (of deepseek-v3 without its
// layer for multi-token prediction, and without e_score_correction_bias, a buffer; vision parts
// with their text); for the two measured shapes (llama-1b-24x2048, llama-3b-28x3072) and those cut
// to some layers what PyTorch counts.
constexpr Model kModels[] = {
    {"gpt2", 124'439'808},
    {"gpt2-medium", 354'823'168},
    {"gpt2-large", 774'030'080},
    {"gpt2-xl", 1'557'611'200},
    {"llama-1b-24x2048", 1'345'423'360},
    {"llama-3b-28x3072", 3'015'355'392},
    {"llama-7b-v1", 6'738'415'616},
    {"llama-2-7b", 6'738'415'616},
    {"llama-2-13b", 13'015'864'320},
    {"llama-2-70b", 68'976'648'192},
    {"llama-3-8b", 8'030'261'248},
    {"llama-3-70b", 70'553'706'496},
    {"llama-3.1-8b", 8'030'261'248},
    {"llama-3.1-405b", 405'853'388'800},
    {"llama-3.2-1b", 1'235'814'400},
    {"llama-3.2-3b", 3'212'749'824},
    {"mistral-7b-v0.1", 7'241'732'096},
    {"qwen2.5-0.5b", 494'032'768},
    {"qwen2.5-1.5b", 1'543'714'304},
    {"qwen2.5-3b", 3'085'938'688},
    {"qwen2.5-7b", 7'615'616'512},
    {"qwen2.5-14b", 14'770'033'664},
    {"qwen2.5-32b", 32'763'876'352},
    {"qwen2.5-72b", 72'706'203'648},
    {"qwen3-0.6b", 596'049'920},
    {"qwen3-1.7b", 1'720'574'976},
    {"qwen3-4b", 4'022'468'096},
    {"qwen3-8b", 8'190'735'360},
    {"qwen3-14b", 14'768'307'200},
    {"qwen3-32b", 32'762'123'264},
    {"mixtral-8x7b", 46'702'792'704},
    {"qwen1.5-moe-a2.7b", 14'315'784'192},
    {"qwen3-30b-a3b", 30'532'122'624},
    {"qwen3-235b-a22b", 235'093'634'560},
    {"deepseek-v2-lite", 15'706'484'224},
    {"deepseek-v3", 671'026'404'352},
    {"gpt-oss-20b", 20'914'757'184},
    {"gpt-oss-120b", 116'829'156'672},
    {"phi-3-mini-4k", 3'821'079'552},
    {"phi-4", 14'659'507'200},
    {"gemma-2b", 2'506'172'416},
    {"gemma-7b", 8'537'680'896},
    {"gemma-2-9b", 9'241'705'984},
    {"gemma-2-27b", 27'227'128'320},
    {"gemma-3-1b", 999'885'952},
    {"gemma-3-4b", 4'300'079'472},
    {"gemma-3-27b", 27'432'406'640},
    {"gpt-j-6b", 6'050'882'784},
    {"gpt-neox-20b", 20'554'567'680},
    {"pythia-6.9b", 6'857'302'016},
    {"opt-350m", 331'196'416},
    {"opt-1.3b", 1'315'758'080},
    {"opt-6.7b", 6'658'473'984},
    {"opt-13b", 12'853'473'280},
    {"opt-30b", 29'974'540'288},
    {"bloom-560m", 559'214'592},
    {"bloom-176b", 176'247'271'424},
    {"falcon-7b", 6'921'720'704},
    {"falcon-40b", 41'303'293'952},
    {"phi-2", 2'779'683'840},
    {"chatglm3-6b", 6'243'584'000},
    {"baichuan2-7b", 7'505'973'248},
    {"starcoder2-7b", 7'173'923'840},
    {"llava-1.5-7b", 7'063'427'072},
    {"qwen2.5-vl-7b", 8'292'166'656},
    {"mixtral-8x7b-3l", 4'615'958'528},
    {"mixtral-8x7b-6l", 8'969'768'960},
    {"qwen1.5-moe-12l", 7'469'058'048},
    {"qwen3-moe-12l", 8'099'779'584},
};

class Models : public testing::TestWithParam<Model> {};

TEST_P(Models, HasExactlyThePublishedParameters) {
  const Shape shape = load(GetParam().name);
  EXPECT_EQ(shape.name, GetParam().name);
  EXPECT_EQ(parameters(shape) + shape.outside, GetParam().parameters);
}

TEST_P(Models, TensorsOneByOneAddUpToTheTotal) {
  const Shape shape = load(GetParam().name);
  std::int64_t sum = 0;
  std::set<std::string> names;
  for (const Tensor& tensor : all_tensors(shape)) {
    sum += tensor.numel();
    names.insert(tensor.name);
  }
  EXPECT_EQ(sum + shape.outside, GetParam().parameters);
  EXPECT_EQ(names.size(), all_tensors(shape).size()) << "a name occurs twice";
}

std::string test_name(const testing::TestParamInfo<Model>& info) {
  std::string name = info.param.name;
  std::ranges::replace_if(
      name, [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(All, Models, testing::ValuesIn(kModels), test_name);

TEST(ModelsFolder, HoldsNoFileWithoutAKnownCount) {
  std::set<std::string> known;
  for (const Model& model : kModels) {
    known.insert(std::string(model.name) + ".json");
  }
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(models_folder())) {
    if (entry.path().extension() != ".md") {
      found.insert(entry.path().filename().string());
    }
  }
  EXPECT_EQ(found, known);
}

}  // namespace
}  // namespace offsim::model::models_test
