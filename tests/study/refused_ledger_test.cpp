// Is a file of measured steps refused where it says what cannot be compared?
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "sim/study/validate.h"
#include "tests/base/message_of.h"

namespace offsim::study::refused_ledger_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// The repository's machines and models, and measured steps of the test's own.
class LedgerFile : public testing::Test {
 protected:
  LedgerFile() {
    fs::create_directories(folder / "validation");
    for (const char* part : {"hardware", "models"}) {
      fs::create_directory_symlink(fs::path(OFFSIM_SOURCE_DIR) / part, folder / part);
    }
  }
  ~LedgerFile() override { fs::remove_all(folder); }

  Ledger ledger(const std::string& rows, const std::string& machine = "h200-pcie5") {
    std::ofstream(folder / "validation" / "v.yaml")
        << "machine: " << machine << "\nfrom: a test\nrows: [" << rows << "]\n";
    return validate(Catalog::folder(folder.string()), "v");
  }
  // Without the folder's name.
  std::string refusal(const std::string& rows, const std::string& machine = "h200-pcie5") {
    const std::string message = message_of([&] { ledger(rows, machine); });
    const std::string name = (folder / "validation").string() + "/";
    return message.starts_with(name) ? message.substr(name.size()) : message;
  }

  const fs::path folder =
      fs::path(testing::TempDir()) / ("offsim_ledger_" + std::to_string(::getpid()));
  const std::string kRow = "{id: r, model: gpt2, plan: native, workload: {micro_batch: 1}, step: ";
};

// Rows of systems that are not modelled stay, without an error.
TEST_F(LedgerFile, KeepsRowsOfSystemsThatAreNotModelled) {
  const std::string other =
      "{id: o, model: gpt2, plan: {plan: horizon}, workload: {micro_batch: 1}, step: 1 s}";
  const Ledger both = ledger(kRow + "1 s}, " + other);
  ASSERT_EQ(both.rows.size(), 2U);
  EXPECT_EQ(both.rows[1].missing, "no such plan yet");
  EXPECT_THAT(ledger_text(both), HasSubstr("no such plan yet"));
  EXPECT_EQ(ledger_error(both, LedgerWhat::kStep).count, 1U);
}

TEST_F(LedgerFile, MeasuredQuantitiesAreMoreThanZero) {
  EXPECT_EQ(refusal(kRow + "1 s}"), "(nothing was refused)");
  EXPECT_EQ(refusal(kRow + "0 s}"), "v.yaml:3:77: step is zero; expected more");
  EXPECT_EQ(refusal(kRow + "1 s, parts: {forward: 0 s}}"),
            "v.yaml:3:99: forward is zero; expected more");
  EXPECT_EQ(refusal(kRow + "1 s, gpu_peak: 0 GiB}"),
            "v.yaml:3:92: gpu_peak is zero; expected more");
}

TEST_F(LedgerFile, AMeasuredStepHasANumberOfSequences) {
  const std::string wrong =
      ": micro_batch of a measured step is 'largest'; expected the number that it was measured "
      "with";
  EXPECT_EQ(refusal("{id: r, model: gpt2, plan: native, workload: {micro_batch: largest}, "
                    "step: 1 s}"),
            "v.yaml:3:67" + wrong);
  EXPECT_EQ(refusal("{id: r, model: gpt2, plan: {plan: native, workload: {micro_batch: largest}}, "
                    "workload: {micro_batch: 1}, step: 1 s}"),
            "v.yaml:3:74" + wrong);
}

// What a plan refuses is at its name.
TEST_F(LedgerFile, ARefusedPlanHasAPlace) {
  EXPECT_EQ(refusal("{id: r, model: gpt2, plan: mlx, workload: {precision: bf16}, step: 1 s}"),
            "v.yaml:3:35: mlx needs unified memory, and the GPU of h200-pcie5 has a memory of its "
            "own; expected a machine whose CPU and GPU share one, such as mac-studio-m3-ultra");
}

TEST_F(LedgerFile, AUnifiedMachineHasNoMemoryOfTheHost) {
  EXPECT_EQ(refusal(kRow + "1 s, host_resident: 1 GiB}", "mac-studio-m3-ultra"),
            "v.yaml:3:97: host_resident is of a memory that is not there; expected none: this "
            "machine has one memory");
}

TEST_F(LedgerFile, SlipsAreToldTheNearestKey) {
  EXPECT_EQ(refusal(kRow + "1 s, gpu_paek: 1 GiB}"),
            "v.yaml:3:82: unknown key 'gpu_paek' in row; did you mean 'gpu_peak'?");
}

TEST_F(LedgerFile, RowsAreAtLeastOne) {
  EXPECT_EQ(refusal(""), "v.yaml:3:7: rows is not a list of rows; expected [{id: ..., ...}]");
}

TEST_F(LedgerFile, AFolderHasAFile) {
  const Catalog catalog = Catalog::folder(folder.string());
  EXPECT_EQ(message_of([&] { validate(catalog, ""); }),
            (folder / "validation").string() +
                ": no measured steps are in this folder; expected a YAML file for each machine");
  ledger(kRow + "1 s}");
  EXPECT_EQ(message_of([&] { validate(catalog, "w"); }),
            "command line: there are no measured steps 'w'; expected one of v");
}

TEST_F(LedgerFile, AnyNameIsJson) {
  const auto json = nlohmann::json::parse(ledger_json(
      ledger("{id: 'a\"b\\', model: gpt2, plan: 'x\"', workload: {micro_batch: 1}, step: 1 s, "
             "calibrates: '\"'}")));
  EXPECT_EQ(json["rows"][0]["id"], "a\"b\\");
  EXPECT_EQ(json["rows"][0]["plan"], "x\"");
  EXPECT_EQ(json["rows"][0]["calibrates"], "\"");
}

}  // namespace
}  // namespace offsim::study::refused_ledger_test
