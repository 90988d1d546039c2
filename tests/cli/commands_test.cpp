// Do the commands answer what was asked, in text and for scripts, and leave whole files behind?
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "sim/base/text.h"
#include "sim/plans/plan.h"
#include "sim/study/catalog.h"
#include "tests/cli/program.h"

namespace offsim::cli::commands_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

const std::string kAsk = "predict --model qwen2.5-7b --hardware h200-pcie5 --plan megatrain";

std::string good(const Outcome& outcome) {
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "");
  return outcome.out;
}

// Progress depends on the clock.
std::string without_colour(const std::string& text) {
  return std::regex_replace(text,
                            std::regex("\033\\[[0-9;]*m|\r[a-z ]*[0-9]+ of [0-9]+|\r\033\\[K"), "");
}

// Without the '\r' of a terminal.
std::size_t widest(const std::string& text) {
  std::size_t most = 0;
  for (const std::string& line : lines_of(text)) {
    most = std::max(most, display_width(line.substr(0, line.find('\r'))));
  }
  return most;
}

// What was wrapped, in one line.
std::string one_line(const std::string& text) {
  std::istringstream in(text);
  std::string out;
  for (std::string word; in >> word;) {
    out += (out.empty() ? "" : " ") + word;
  }
  return out;
}

// The command of the last line, which may go on after a backslash.
std::string next_of(const std::string& text) {
  const std::size_t at = text.rfind("Next: ");
  if (at == std::string::npos) {
    ADD_FAILURE() << text;
    return "";
  }
  std::string command;
  for (std::string line : lines_of(text.substr(at + 6))) {
    line.erase(0, std::min(line.find_first_not_of(' '), line.size()));
    command += line.ends_with('\\') ? line.substr(0, line.size() - 1) : line;
  }
  return command;
}

TEST(Help, IsShownForNothingAndForEveryCommand) {
  EXPECT_THAT(good(offsim("")), HasSubstr("offsim predict --model"));
  EXPECT_THAT(good(offsim("--version")), testing::MatchesRegex("offsim [0-9.]+\n"));
  EXPECT_THAT(good(offsim("--help")), HasSubstr("compare"));
  for (const char* command : {"predict", "run", "compare", "cost", "catalog", "validate", "dag"}) {
    const std::string help = good(offsim(std::string(command) + " --help"));
    EXPECT_THAT(help, HasSubstr(std::string("Example:\n  offsim ") + command));
    for (const std::string& line : lines_of(help)) {
      EXPECT_LE(display_width(line), 80u) << line;
    }
  }
}

// An example that does not work is worse than none.
TEST(Help, ExamplesWork) {
  const std::filesystem::path root(OFFSIM_SOURCE_DIR);
  for (const char* command : {"predict", "run", "compare", "cost", "catalog", "validate", "dag"}) {
    const std::string help = good(offsim(std::string(command) + " --help"));
    const std::string example = help.substr(help.rfind("Example:\n") + 9);
    EXPECT_EQ(shell(example, root).code, 0) << example;
  }
}

TEST(Predict, FitsATerminalAndEndsWithACommandThatWorks) {
  const std::string text = good(offsim(kAsk + " --micro-batch 8"));
  EXPECT_THAT(text, Not(HasSubstr("\033")));
  for (const std::string& line : lines_of(text)) {
    EXPECT_LE(display_width(line), 80u) << line;
  }
  const std::string next = next_of(text);
  EXPECT_THAT(next, HasSubstr("--micro-batch 8"));
  EXPECT_THAT(good(shell(next)), HasSubstr("zero2-offload"));
}

TEST(Predict, NextAsksTheSameWork) {
  const std::string flags =
      " --micro-batch 2 --sequence 512 --accumulation 3 --checkpointing full --phase-sync";
  EXPECT_THAT(next_of(good(offsim(kAsk + flags))), HasSubstr(flags));
}

TEST(Predict, NextNamesFilesAsTheyWereNamed) {
  const Folder folder;
  std::filesystem::copy(OFFSIM_SOURCE_DIR "/models/gpt2.json", folder.path() / "it's mine.json");
  const Outcome outcome = shell(
      "offsim predict --model \"it's mine.json\" --hardware h200-pcie5 --plan native --catalog " +
          std::string(OFFSIM_SOURCE_DIR),
      folder.path());
  good(shell(next_of(good(outcome)), folder.path()));
}

TEST(Predict, OffersTheLargestMicroBatchWhenItDoesNotFit) {
  const std::string text =
      good(offsim("predict --model qwen2.5-7b --hardware h200-pcie5 --plan native"
                  " --micro-batch 512 --set native.gradient_clipping=true"));
  const std::string next = next_of(text);
  EXPECT_THAT(next, HasSubstr("--micro-batch largest"));
  EXPECT_THAT(next, HasSubstr("--set native.gradient_clipping=true"));
  EXPECT_THAT(next_of(good(shell(next))), HasSubstr("offsim compare"));
}

TEST(Predict, JsonIsTheSameTwiceButForTheClock) {
  json first = json::parse(good(offsim(kAsk + " --json -")));
  json second = json::parse(good(offsim(kAsk + " --json -")));
  EXPECT_EQ(first.at("schema"), "offsim.prediction/1");
  EXPECT_GT(first.at("step_s").get<double>(), 0);
  EXPECT_EQ(first.erase("simulate_s"), 1u);
  EXPECT_EQ(second.erase("simulate_s"), 1u);
  EXPECT_EQ(first, second);
}

TEST(Predict, FolderOfTheRepositoryGivesWhatIsInTheProgram) {
  json inside = json::parse(good(offsim(kAsk + " --json -")));
  json outside = json::parse(good(offsim(kAsk + " --json - --catalog " + OFFSIM_SOURCE_DIR)));
  EXPECT_EQ(inside.at("step_s"), outside.at("step_s"));
  EXPECT_EQ(inside.at("memory"), outside.at("memory"));
}

TEST(Predict, PriceAndTokensArePricedAsGiven) {
  const json at_two = json::parse(good(shell("offsim " + kAsk + " --price '2 USD/h' --json -")));
  EXPECT_EQ(at_two.at("cost").at("usd_per_hour"), 2.0);
  EXPECT_DOUBLE_EQ(at_two.at("cost").at("usd_per_step").get<double>() * 3600,
                   at_two.at("step_s").get<double>() * 2);
  const std::string plain = good(offsim(kAsk));
  const std::string budget = good(offsim(kAsk + " --tokens 10M"));
  EXPECT_GT(lines_of(budget).size(), lines_of(plain).size());
  EXPECT_EQ(next_of(budget), next_of(plain));
}

TEST(Predict, ExplainListsEverySettingOptionAndFigure) {
  const std::string text =
      good(offsim(kAsk + " --explain --sequence 512 --set megatrain.checkpoint_interval=2"));
  for (const plans::OptionSpec& spec : plans::find_plan("megatrain", {}).options) {
    EXPECT_THAT(text, HasSubstr("megatrain." + std::string(spec.name) + " "));
  }
  for (const char* setting :
       {"micro_batch", "sequence", "accumulation", "checkpointing", "precision", "phase_sync",
        "loader_workers", "loader_bandwidth", "lora_rank", "activation_offload"}) {
    EXPECT_THAT(text, HasSubstr(std::string("workload.") + setting + " "));
  }
  EXPECT_THAT(text, testing::ContainsRegex("workload.sequence +512 +command line\n"));
  EXPECT_THAT(text, testing::ContainsRegex("checkpoint_interval +2 +command line\n"));
  EXPECT_THAT(text, testing::ContainsRegex("workload.accumulation +1 +default\n"));
  EXPECT_THAT(text, Not(testing::ContainsRegex("price +2USD/h")));
  EXPECT_THAT(good(offsim(kAsk + " --explain --price 2USD/h")),
              testing::ContainsRegex("price +2USD/h +command line\n"));
  const machine::Machine m = study::Catalog::embedded().machine("h200-pcie5", {});
  const std::string words = one_line(text);
  for (const machine::Figure& figure : m.figures) {
    EXPECT_THAT(words, HasSubstr(figure.name + " "));
    EXPECT_THAT(words, HasSubstr(one_line(figure.from) + " (" + figure.place.text() + ")"));
  }
  EXPECT_THAT(words, HasSubstr("efficiency shares taken from h200-16core-vm: "));
}

// A figure is shown as its file writes it, so with its unit.
// What is held in each phase, in a script's words as in a person's.
TEST(Predict, SaysWhatEveryPhaseHolds) {
  const std::string ask =
      "predict --model llama-3.2-1b --hardware h200-pcie5 --plan zero2-offload ";
  EXPECT_THAT(good(offsim(ask + "--memory")),
              AllOf(HasSubstr("host, GiB"), HasSubstr("pinned rounding"), HasSubstr("  load  "),
                    HasSubstr("DeepSpeed's, GiB")));
  const json whole = json::parse(good(offsim(ask + "--memory --json -")));
  const json& phases = whole["memory_phases"]["host"];
  ASSERT_EQ(phases.size(), 4U);
  EXPECT_EQ(phases[3]["peak_bytes"], whole["memory"]["host"]["peak_bytes"]);
  EXPECT_EQ(phases[3]["by_tag"]["Adam states"], 8 * std::int64_t{1'235'814'400});
  EXPECT_LT(phases[0]["peak_bytes"], phases[2]["peak_bytes"]);
}

// The best edit's command is the next one, and a script reads the same.
TEST(Advise, SaysWhatToChangeAndTheNextCommand) {
  const std::string ask = "advise --model llama-3.2-1b --hardware h200-pcie5 --plan zero3-offload ";
  EXPECT_THAT(
      good(offsim(ask)),
      AllOf(HasSubstr("worth it, simulated"), HasSubstr("the usual advice, in its order"),
            HasSubstr("Adam on the GPU, parameters still offloaded"), HasSubstr("makes it slower"),
            HasSubstr("Bounds: "), HasSubstr("Next: offsim predict --model llama-3.2-1b")));
  const json whole = json::parse(good(offsim(ask + "--json -")));
  EXPECT_EQ(whole["schema"], "offsim.advice/1");
  EXPECT_GT(whole["edits"][0]["gain"], whole["edits"][5]["gain"]);
  EXPECT_EQ(whole["now"]["schema"], "offsim.prediction/1");
}

// Drives are rated in writes of their capacity a day.
TEST(Predict, SaysHowFastItWearsADriveOut) {
  const std::string ask =
      "predict --model llama-3.2-1b --hardware workstation-pcie4-4090 --plan zero-infinity "
      "--set zero-infinity.offload_param=cpu ";
  EXPECT_THAT(good(offsim(ask)), AllOf(HasSubstr("NVMe"), HasSubstr("times its")));
  const json p = json::parse(good(offsim(ask + "--json -")));
  const double written = p["bytes"]["nvme_write"];
  EXPECT_GT(written, 0);
  EXPECT_NEAR(p["nvme_written_bytes_a_day"].get<double>(),
              written * 86'400 / p["step_s"].get<double>(), 1);
}

TEST(Fit, SaysTheLargestOfEveryPlan) {
  const std::string ask =
      "fit --model llama-3.2-1b --hardware h200-pcie5 --plans native,megatrain ";
  EXPECT_THAT(good(offsim(ask)), AllOf(HasSubstr("largest dense model"), HasSubstr("megatrain"),
                                       HasSubstr("Next: offsim compare")));
  const json plans = json::parse(good(offsim(ask + "--json -")))["plans"];
  ASSERT_EQ(plans.size(), 2U);
  EXPECT_GT(plans[1]["micro_batch"], plans[0]["micro_batch"]);
}

TEST(Predict, ExplainShowsUnits) {
  EXPECT_THAT(good(offsim(kAsk + " --explain")),
              testing::ContainsRegex("accelerator.memory_bandwidth +4.8 TB/s +datasheet"));
}

// Nothing is wider than the terminal, and colour changes nothing else. An address stays whole.
TEST(Text, FitsItsTerminal) {
  const std::string some = " --model qwen2.5-7b --hardware h200-pcie5 --micro-batch 8";
  for (const std::string& ask :
       {"predict --plan megatrain --explain --tokens 10M" + some,
        "predict --plan native --micro-batch 512" + some.substr(0, some.rfind(" --")),
        "predict --plan superoffload --memory" + some,
        "compare --plans native,megatrain --checkpointing full" + some,
        "advise --plan zero3-offload" + some,
        "predict --plan megatrain --explain --tokens 10M --lang zh" + some,
        "predict --plan superoffload --memory --lang zh" + some,
        std::string("predict --plan zero3-offload --memory --lang zh --model llama-3.1-405b"
                    " --hardware workstation-pcie4-4090 --micro-batch 64"),
        "compare --plans native,mlx,megatrain --checkpointing full --lang zh" + some,
        "compare --lora-rank 8 --lang zh" + some,
        "advise --plan zero3-offload --lang zh" + some,
        "advise --plan native --micro-batch 512" + some.substr(0, some.rfind(" --")),
        "fit --plans native,zero3-offload" + some,
        "cost --tokens 1M --plan zero3-offload" + some,
        "diagnose " OFFSIM_SOURCE_DIR "/scenarios/slow-optimizer.log --plan zero3-offload" + some,
        std::string("run deepspeed-offload"),
        std::string("validate h200-native"),
        std::string("catalog hardware"),
        std::string("catalog hardware gh200-480gb"),
        std::string("catalog plans"),
        std::string("catalog options"),
        std::string("catalog scenarios")}) {
    SCOPED_TRACE(ask);
    std::string at_80;
    for (const int columns : {60, 80, 160}) {
      SCOPED_TRACE(columns);
      const std::string plain = on_terminal("NO_COLOR=1 offsim " + ask, columns);
      at_80 = columns == 80 ? plain : at_80;
      for (const std::string& line : lines_of(plain)) {
        if (line.find("://") == std::string::npos) {
          EXPECT_LE(widest(line), static_cast<std::size_t>(columns)) << line;
        }
      }
    }
    EXPECT_EQ(without_colour(on_terminal("offsim " + ask, 80)), without_colour(at_80));
  }
  EXPECT_LE(widest(on_terminal("NO_COLOR=1 offsim catalog models", 80)), 80u);
}

TEST(Predict, FilesAreWholeAndAlone) {
  const Folder folder;
  folder.write("step.json", "an older answer that is longer than nothing");
  const std::string text = good(
      offsim(kAsk + " --json step.json --trace trace.json --program calls.jsonl", folder.path()));
  EXPECT_THAT(text, HasSubstr("Next: "));
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"calls.jsonl", "step.json", "trace.json"}));
  EXPECT_EQ(json::parse(folder.read("step.json")).at("feasible"), true);
  EXPECT_GT(json::parse(folder.read("trace.json")).at("traceEvents").size(), 10u);
  const std::vector<std::string> calls = lines_of(folder.read("calls.jsonl"));
  EXPECT_GT(calls.size(), 100u);
  for (const std::string& line : calls) {
    EXPECT_TRUE(json::parse(line).is_object());
  }
}

TEST(Predict, ATraceMayGoToStdout) {
  EXPECT_TRUE(json::parse(good(offsim(kAsk + " --trace -"))).contains("traceEvents"));
}

TEST(Predict, AMistakeLeavesAnOldFileAlone) {
  const Folder folder;
  folder.write("step.json", "precious");
  EXPECT_EQ(
      offsim(kAsk + " --json step.json --trace no/where.json --micro-batch 0", folder.path()).code,
      2);
  EXPECT_EQ(folder.read("step.json"), "precious");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"step.json"});
}

TEST(Predict, ALinkIsFollowedAndADeviceStays) {
  const Folder folder;
  folder.write("real.json", "old");
  std::filesystem::create_symlink("real.json", folder.path() / "link.json");
  good(offsim(kAsk + " --json link.json --trace /dev/null", folder.path()));
  EXPECT_TRUE(std::filesystem::is_symlink(folder.path() / "link.json"));
  EXPECT_TRUE(json::parse(folder.read("real.json")).contains("step_s"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST(Predict, ColourIsForTerminalsAndMayBeRefused) {
  EXPECT_THAT(on_terminal("offsim " + kAsk), HasSubstr("\033[1m"));
  EXPECT_THAT(on_terminal("NO_COLOR=1 offsim " + kAsk), Not(HasSubstr("\033")));
  EXPECT_THAT(on_terminal("NO_COLOR= offsim " + kAsk), HasSubstr("\033[1m"));
  EXPECT_THAT(on_terminal("offsim " + kAsk + " --json -"), Not(HasSubstr("\033")));
}

TEST(Predict, AFullDiskIsNotSuccess) {
  EXPECT_EQ(shell("offsim " + kAsk + " --json /dev/full").code, 2);
  EXPECT_EQ(shell("offsim " + kAsk + " > /dev/full").code, 2);
}

TEST(Compare, KeepsWhatDoesNotFitAndWhatIsRefused) {
  const std::string ask =
      "compare --model qwen2.5-7b --hardware h200-pcie5 --micro-batch 8 --precision bf16";
  const std::string text = good(offsim(ask));
  EXPECT_THAT(text, HasSubstr("zero2-offload does not run in bf16"));
  const json answer = json::parse(good(offsim(ask + " --json -")));
  EXPECT_EQ(answer.at("schema"), "offsim.comparison/1");
  EXPECT_EQ(answer.at("predictions").size(), plans::registry().size());
}

TEST(Compare, RefusalsStayBesideTheLargestMicroBatchOfOthers) {
  EXPECT_THAT(good(offsim("compare --model gpt2 --hardware h200-pcie5 --micro-batch largest"
                          " --micro-batch-limit 4 --precision bf16")),
              HasSubstr("zero2-offload does not run in bf16"));
}

TEST(Compare, NextPredictsTheFastestThatFits) {
  const std::string text =
      good(offsim("compare --model qwen2.5-7b --micro-batch 8"
                  " --hardware h200-pcie5,gh200-480gb"));
  const json answer =
      json::parse(good(offsim("compare --model qwen2.5-7b --micro-batch 8 --json -"
                              " --hardware h200-pcie5,gh200-480gb")));
  json best;
  for (const json& row : answer.at("predictions")) {
    if (row.at("feasible") && (best.is_null() || row.at("step_s") < best.at("step_s"))) {
      best = row;
    }
  }
  const std::string next = next_of(text);
  EXPECT_THAT(next,
              HasSubstr("--hardware " + best.at("scenario").at("hardware").get<std::string>()));
  EXPECT_THAT(next, HasSubstr("--plan " + best.at("scenario").at("plan").get<std::string>()));
  good(shell(next));
}

TEST(Compare, ATableIsAsWideAsItsTerminal) {
  const std::string ask =
      "offsim compare --model qwen2.5-7b --micro-batch largest --hardware h200-pcie5,gh200-480gb "
      "--plans native,zero2-offload,megatrain";
  const std::size_t width = widest(on_terminal("NO_COLOR=1 " + ask));
  EXPECT_GT(width, 80u);
  EXPECT_LE(width, 100u);
}

TEST(Compare, SetReachesTheNamedPlanOnly) {
  const json answer = json::parse(
      good(offsim("compare --model qwen2.5-7b --hardware h200-pcie5 --json - --plans all"
                  " --set megatrain.checkpoint_interval=2")));
  for (const json& row : answer.at("predictions")) {
    const json& scenario = row.at("scenario");
    if (scenario.at("plan") == "megatrain") {
      EXPECT_EQ(scenario.at("options").at("checkpoint_interval").dump(), "2");
    } else {
      EXPECT_FALSE(scenario.at("options").contains("checkpoint_interval"));
    }
  }
}

TEST(Run, AnswersLikePredict) {
  const Folder folder;
  folder.write(
      "one.yaml",
      "model: qwen2.5-7b\nhardware: h200-pcie5\nplans: {megatrain: {checkpoint_interval: 2}}\n"
      "workload: {micro_batch: 4, sequence: 512}\n");
  const json table = json::parse(good(offsim("run one.yaml --json -", folder.path())));
  const json alone = json::parse(good(offsim(
      kAsk + " --micro-batch 4 --sequence 512 --set megatrain.checkpoint_interval=2 --json -")));
  ASSERT_EQ(table.at("predictions").size(), 1u);
  EXPECT_EQ(table.at("predictions")[0].at("step_s"), alone.at("step_s"));
  const std::string next = next_of(good(offsim("run one.yaml", folder.path())));
  EXPECT_EQ(next, "offsim " + kAsk +
                      " --micro-batch 4 --sequence 512 --set megatrain.checkpoint_interval=2");
}

TEST(Run, ShowsWhatWasPublished) {
  const Folder folder;
  const std::string scenario = "model: gpt2\nhardware: h200-pcie5\nplans: native\n";
  folder.write("plain.yaml", scenario);
  folder.write("published.yaml",
               scenario + "published: [{model: gpt2, plan: native, tflops: 987, from: a dream}]\n");
  EXPECT_THAT(good(offsim("run plain.yaml", folder.path())), Not(HasSubstr("987")));
  EXPECT_THAT(good(offsim("run published.yaml", folder.path())), HasSubstr("987"));
}

TEST(Run, TakesEveryScenarioOfTheCatalog) {
  for (const std::string& name : study::Catalog::embedded().list("scenarios", ".yaml")) {
    SCOPED_TRACE(name);
    const Outcome outcome = offsim("run " + name);
    EXPECT_THAT(next_of(good(outcome)), HasSubstr("offsim "));
  }
}

TEST(Catalog, ListsEverythingThatCanBeNamed) {
  const study::Catalog catalog = study::Catalog::embedded();
  const std::string hardware = good(offsim("catalog hardware"));
  for (const std::string& name : catalog.machine_names()) {
    EXPECT_THAT(hardware, HasSubstr(name + ": "));
  }
  const std::string models = good(offsim("catalog models"));
  for (const std::string& name : catalog.model_names()) {
    EXPECT_THAT(models, HasSubstr(name + " "));
  }
  const std::string plans = one_line(good(offsim("catalog plans")));
  const std::string options = good(offsim("catalog options"));
  for (const plans::Plan& plan : plans::registry()) {
    EXPECT_THAT(plans, HasSubstr(std::string(plan.sentence)));
    for (const plans::OptionSpec& spec : plan.options) {
      const std::string name = std::string(plan.name) + "." + std::string(spec.name);
      EXPECT_THAT(options, HasSubstr(name + " = " + std::string(spec.fallback)));
    }
  }
  EXPECT_THAT(good(offsim("catalog options native")), Not(HasSubstr("megatrain")));
}

TEST(Validate, LedgerIsForPeopleAndScripts) {
  EXPECT_NE(good(offsim("validate")), "");
  EXPECT_EQ(json::parse(good(offsim("validate --json -"))).at("schema"), "offsim.ledger/1");
}

TEST(Dag, PrintsFinishTimes) {
  const Outcome outcome =
      offsim("dag tests/dag_bench/oracle/two_links.dag --finish -", OFFSIM_SOURCE_DIR);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, testing::StartsWith("0 2.000000000000\n1 3.000000000000\n"));
  EXPECT_EQ(json::parse(outcome.err).at("activities"), 3);
}

}  // namespace
}  // namespace offsim::cli::commands_test
