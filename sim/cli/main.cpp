// The command line: flags to the options of a command, exceptions to exit codes.
//
// 0 done, 2 a mistake of the user or an output that cannot be written (one line on stderr), 1 a
// mistake of ours (a sentence). CLI11 splits the line; what is missing, unknown or empty is said
// here, in the words of the rest.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <functional>
#include <iostream>

#include "sim/base/config.h"
#include "sim/base/error.h"
#include "sim/base/language.h"
#include "sim/base/text.h"
#include "sim/cli/advise.h"
#include "sim/cli/calibrate.h"
#include "sim/cli/catalog.h"
#include "sim/cli/compare.h"
#include "sim/cli/cost.h"
#include "sim/cli/dag.h"
#include "sim/cli/diagnose.h"
#include "sim/cli/fit.h"
#include "sim/cli/flags.h"
#include "sim/cli/output.h"
#include "sim/cli/predict.h"
#include "sim/cli/question.h"
#include "sim/cli/replay.h"
#include "sim/cli/run.h"
#include "sim/cli/validate.h"
#include "sim/study/predict.h"

namespace offsim::cli {
namespace {

constexpr const char* kVersion = "offsim 0.1.0";
constexpr const char* kShortHelp = R"(offsim predicts what one step of offloaded LLM training costs.

  offsim predict --model qwen2.5-14b --hardware gh200-480gb --plan megatrain
  offsim compare --model llama-3.1-8b --hardware h200-pcie5 --micro-batch largest
  offsim run scenarios/gh200.yaml
  offsim catalog hardware

Every command has --help; offsim --help lists them.
)";

// A command: its flags, those that it cannot do without, and what it does.
struct Command {
  CLI::App* app;
  std::vector<std::string> needed;
  std::function<int(std::ostream& out, std::ostream& err)> run;
};

Command predict_command_line(CLI::App& main, PredictOptions& options, std::string& language) {
  CLI::App* app = main.add_subcommand("predict", "one step of a model on a machine under a plan");
  add_question_flags(app, options, Asks::kOnePlan);
  add_config_flags(app, options, "in place of --plan");
  add_answer_flags(app, options.price, options.json);
  app->add_option("--tokens", options.tokens, "hours and dollars for so many, such as 10M")
      ->type_name("N");
  app->add_option("--trace", options.trace, "write a Chrome trace of the step")->type_name("FILE");
  app->add_option("--program", options.program, "write the recorded calls as JSON lines")
      ->type_name("FILE");
  app->add_flag("--explain", options.explain, "every value in force, and where it is from")
      ->disable_flag_override();
  app->add_flag("--memory", options.memory, "what every pool holds in every phase, tag by tag")
      ->disable_flag_override();
  add_language_flag(app, language);
  add_catalog_flag(app, options.catalog);
  app->footer(
      "Example:\n  offsim predict --model qwen2.5-14b --hardware gh200-480gb --plan megatrain \\\n"
      "    --micro-batch 64 --set megatrain.checkpoint_interval=4");
  return {app, {"--model", "--hardware"}, [&options](std::ostream& out, std::ostream& err) {
            return run_predict(options, out, err);
          }};
}

Command advise_command_line(CLI::App& main, AdviseOptions& options, std::string& language) {
  CLI::App* app = main.add_subcommand("advise", "what to change, each edit simulated");
  add_question_flags(app, options, Asks::kOnePlan);
  add_config_flags(app, options, "in place of --plan");
  add_json_flag(app, options.json);
  add_language_flag(app, language);
  add_catalog_flag(app, options.catalog);
  app->footer(
      "Example:\n  offsim advise --model llama-3.1-8b --hardware h200-pcie5 \\\n"
      "    --ds-config ds.json --trainer \"--bf16 --per_device_train_batch_size 4\"");
  return {app, {"--model", "--hardware"}, [&options](std::ostream& out, std::ostream& err) {
            return run_advise(options, out, err);
          }};
}

Command compare_command_line(CLI::App& main, CompareOptions& options, std::string& language) {
  CLI::App* app = main.add_subcommand("compare", "plans and machines beside each other");
  add_question_flags(app, options, Asks::kSeveralPlans);
  app->get_option("--hardware")
      ->description("names or files, separated by commas")
      ->type_name("H,...");
  add_config_flags(app, options, "row 1, work of all");
  add_answer_flags(app, options.price, options.json);
  add_language_flag(app, language);
  add_catalog_flag(app, options.catalog);
  app->footer(
      "Example:\n  offsim compare --model llama-3.1-8b --hardware h200-pcie5,gh200-480gb \\\n"
      "    --micro-batch largest");
  return {app, {"--model", "--hardware"}, [&options](std::ostream& out, std::ostream& err) {
            return run_compare(options, out, err);
          }};
}

Command fit_command_line(CLI::App& main, FitOptions& options) {
  CLI::App* app = main.add_subcommand("fit", "the largest batch, sequence and model that fit");
  add_question_flags(app, options, Asks::kSeveralPlans);
  add_json_flag(app, options.json);
  add_catalog_flag(app, options.catalog);
  app->footer("Example:\n  offsim fit --model llama-3.1-8b --hardware workstation-pcie5-5090");
  return {app, {"--model", "--hardware"}, [&options](std::ostream& out, std::ostream& err) {
            return run_fit(options, out, err);
          }};
}

Command cost_command_line(CLI::App& main, CostOptions& options) {
  CLI::App* app = main.add_subcommand("cost", "offload beside its alternatives, in dollars");
  add_question_flags(app, options, Asks::kOnePlan);
  add_config_flags(app, options, "in place of --plan");
  app->add_option("--tokens", options.tokens, "to train on, such as 10M")->type_name("N");
  app->add_option("--machines", options.machines, "others to compare with (all with a price)")
      ->type_name("H,...");
  add_answer_flags(app, options.price, options.json);
  add_catalog_flag(app, options.catalog);
  app->footer(
      "Example:\n  offsim cost --model qwen2.5-7b --hardware h200-pcie5 --plan zero2-offload \\\n"
      "    --micro-batch 8 --tokens 10M --machines dgx-h100,gh200-480gb");
  return {app,
          {"--model", "--hardware", "--tokens"},
          [&options](std::ostream& out, std::ostream& err) { return run_cost(options, out, err); }};
}

Command run_command_line(CLI::App& main, RunOptions& options) {
  CLI::App* app = main.add_subcommand("run", "every case of scenario files");
  app->add_option("SCENARIO", options.scenarios, "names of the catalog or YAML files")
      ->type_name("");
  add_answer_flags(app, options.price, options.json);
  add_catalog_flag(app, options.catalog);
  app->footer("Example:\n  offsim run scenarios/gh200.yaml");
  return {app, {"SCENARIO"}, [&options](std::ostream& out, std::ostream& err) {
            return run_scenarios(options, out, err);
          }};
}

Command catalog_command_line(CLI::App& main, CatalogOptions& options) {
  CLI::App* app = main.add_subcommand("catalog", "what can be named");
  app->add_option("WHAT", options.what, "hardware, models, plans, options or scenarios")
      ->type_name("");
  app->add_option("NAME", options.name, "only this one; of hardware: every figure")->type_name("");
  add_catalog_flag(app, options.catalog);
  app->footer("Example:\n  offsim catalog hardware h200-pcie5");
  return {app, {"WHAT"}, [&options](std::ostream& out, std::ostream& err) {
            return run_catalog(options, out, err);
          }};
}

Command validate_command_line(CLI::App& main, ValidateOptions& options) {
  CLI::App* app = main.add_subcommand("validate", "predicted against measured");
  app->add_option("FILE", options.file, "one file of validation/ (all of them)")->type_name("");
  add_json_flag(app, options.json);
  add_catalog_flag(app, options.catalog);
  app->footer("Example:\n  offsim validate");
  return {app, {}, [&options](std::ostream& out, std::ostream& err) {
            return run_validate(options, out, err);
          }};
}

Command calibrate_command_line(CLI::App& main, CalibrateOptions& options) {
  CLI::App* app = main.add_subcommand("calibrate", "measure this machine and write its file");
  app->add_option("--out", options.out, "machine file to write; its records go beside it")
      ->type_name("FILE.yaml");
  app->add_option("--check", options.check, "measure again: what has drifted since that file")
      ->type_name("FILE.yaml");
  app->add_option("--only", options.only, "gpu, link, host, storage, or benches; with commas")
      ->type_name("G,...");
  app->add_flag("--quick", options.quick, "under a minute: fewer sizes and repetitions")
      ->disable_flag_override();
  app->add_option("--file", options.file, "a new file on the drive to measure, removed again")
      ->type_name("FILE");
  app->add_option("--file-size", options.file_size, "of that file, at most")->type_name("SIZE");
  app->add_option("--base", options.base, "a system of the catalog for what is not measured")
      ->type_name("H");
  app->add_option("--kernels", options.kernels, "the program that measures (beside this one)")
      ->type_name("FILE");
  app->add_option("--records", options.records, "of another run, in place of measuring")
      ->type_name("FILE");
  add_catalog_flag(app, options.catalog);
  app->footer("Example:\n  offsim calibrate --out here.yaml --file /mnt/nvme/offsim.tmp");
  return {app, {}, [&options](std::ostream& out, std::ostream& err) {
            return run_calibrate(options, out, err);
          }};
}

Command replay_command_line(CLI::App& main, ReplayOptions& options) {
  CLI::App* app = main.add_subcommand("replay", "a plan's step executed on this machine's GPU");
  add_question_flags(app, options, Asks::kOnePlan);
  app->add_option("--layers", options.layers, "so many layers of the model's")->type_name("N");
  app->add_option("--file", options.file, "a new file, on the drive to be used")->type_name("PATH");
  app->add_option("--kernels", options.kernels, "the program offsim-kernels")->type_name("PATH");
  app->add_option("--save", options.save, "write the program and execute nothing")
      ->type_name("FILE");
  app->add_option("--measured", options.measured, "read what offsim-kernels wrote elsewhere")
      ->type_name("FILE");
  app->add_option("--trace", options.trace, "write both as a Chrome trace")->type_name("FILE");
  add_json_flag(app, options.json);
  add_catalog_flag(app, options.catalog);
  app->footer(
      "Example:\n  offsim replay --model llama-3.2-1b --hardware h200-16core-vm \\\n"
      "    --plan zero3-offload --micro-batch 4 --trace step.json");
  return {
      app, {"--model", "--hardware", "--plan"}, [&options](std::ostream& out, std::ostream& err) {
        return run_replay(options, out, err);
      }};
}

Command diagnose_command_line(CLI::App& main, DiagnoseOptions& options) {
  CLI::App* app = main.add_subcommand("diagnose", "a run's log beside its prediction");
  app->add_option("LOG", options.log, "what the run printed, nvidia-smi too; - for stdin")
      ->type_name("");
  add_question_flags(app, options, Asks::kOnePlan);
  add_json_flag(app, options.json);
  add_catalog_flag(app, options.catalog);
  app->footer(
      "Example:\n  offsim diagnose scenarios/slow-optimizer.log --model llama-3.1-8b \\\n"
      "    --hardware h200-pcie5 --plan zero3-offload --micro-batch 4");
  return {
      app,
      {"LOG", "--model", "--hardware", "--plan"},
      [&options](std::ostream& out, std::ostream& err) { return run_diagnose(options, out, err); }};
}

Command dag_command_line(CLI::App& main, DagOptions& options) {
  CLI::App* app = main.add_subcommand("dag", "simulate a graph of activities");
  app->add_option("FILE", options.file, "one node or edge a line")->type_name("");
  app->add_option("--finish", options.finish, "write \"ID SECONDS\" lines; - for stdout")
      ->type_name("FILE");
  app->footer("Example:\n  offsim dag tests/dag_bench/oracle/two_equal.dag --finish -");
  return {app, {"FILE"}, [&options](std::ostream& out, std::ostream& err) {
            return run_dag(options, out, err);
          }};
}

std::vector<std::string> flags_of(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    if (option->nonpositional()) {
      flags.push_back(option->get_name());
    }
  }
  return flags;
}

// What CLI11 leaves over: a slip in the name of a flag, or a word too many.
void refuse_extras(const CLI::App& app, const std::string& who) {
  for (const std::string& extra : app.remaining()) {
    if (!extra.starts_with("-") || extra == "-" || extra == "--") {
      throw InputError(kCommandLine, fmt::format("'{}' was not expected", extra),
                       fmt::format("{} --help shows what is", who));
    }
    const std::string name = extra.substr(0, extra.find('='));
    const std::string near = nearest(name, flags_of(app));
    throw InputError(kCommandLine, fmt::format("there is no option '{}'", name),
                     near.empty() ? fmt::format("{} --help lists them", who)
                                  : fmt::format("did you mean '{}'?", near));
  }
}

// What cannot be written is told before anything is simulated.
void check_outputs(const CLI::App& app) {
  Outputs outputs;
  for (const char* const flag : {"--json", "--trace", "--program", "--save", "--finish"}) {
    if (const CLI::Option* const option = app.get_option_no_throw(flag);
        option != nullptr && option->count() > 0) {
      outputs.emplace_back(flag, option->results().front());
    }
  }
  require_writable(outputs);
}

void check(const Command& command) {
  const std::string who = "offsim " + command.app->get_name();
  const std::vector<std::string> flags = flags_of(*command.app);
  for (const CLI::Option* option : command.app->get_options()) {
    for (const std::string& value : option->results()) {
      if (value.empty()) {
        throw InputError(kCommandLine, fmt::format("{} is empty", option->get_name()),
                         fmt::format("{} --help shows what it takes", who));
      }
      if (std::ranges::find(flags, value) != flags.end()) {  // CLI11 took the next flag for it
        throw InputError(kCommandLine, fmt::format("{} has no value", option->get_name()),
                         fmt::format("expected one before {}", value));
      }
    }
  }
  refuse_extras(*command.app, who);
  for (const std::string& name : command.needed) {
    if (command.app->count(name) == 0) {
      throw InputError(kCommandLine, fmt::format("{} is missing", name),
                       fmt::format("{} --help shows an example", who));
    }
  }
  check_outputs(*command.app);
}

// Which command was given; nullptr for none at all.
const Command* chosen(const CLI::App& main, const std::vector<Command>& commands) {
  const Command* given = nullptr;
  std::vector<std::string> names;
  for (const Command& command : commands) {
    given = command.app->parsed() ? &command : given;
    names.push_back(command.app->get_name());
  }
  for (const std::string& extra : main.remaining()) {
    if (given != nullptr) {  // before the command, or after "--"
      throw InputError(kCommandLine, fmt::format("'{}' was not expected there", extra),
                       fmt::format("expected a command, then its options: offsim {} --help",
                                   given->app->get_name()));
    }
    if (!extra.starts_with("-")) {
      throw InputError(kCommandLine, fmt::format("there is no command '{}'", extra),
                       suggest(extra, names));
    }
  }
  refuse_extras(main, "offsim");
  if (given != nullptr) {
    check(*given);
  }
  return given;
}

// CLI11's message begins with the option that it is about.
InputError in_our_words(const CLI::ParseError& error) {
  const std::string what = error.what();
  const std::string option = what.substr(0, what.find(':'));
  if (what.find("received") != std::string::npos) {
    return {kCommandLine, option + " is given twice", "expected it once"};
  }
  if (what.find("missing") != std::string::npos) {
    return {kCommandLine, option + " has no value", "expected one after it"};
  }
  if (what.find("override") != std::string::npos) {
    return {kCommandLine, "--" + what.substr(0, what.find(' ')) + " takes no value",
            "expected it alone"};
  }
  return {kCommandLine, what, "offsim --help shows how"};
}

Language language_of(const CLI::App& command, const std::string& language) {
  if (language != "en" && language != "zh") {
    throw InputError(kCommandLine, "--lang is '" + printable(language, 60) + "'",
                     "expected en or zh");
  }
  const CLI::Option* const json = command.get_option_no_throw("--json");
  if (language == "zh" && json != nullptr && !json->empty() && json->results().back() == "-") {
    throw InputError(kCommandLine, "--lang has no effect when '-' sends data to stdout",
                     "expected a file in place of '-'");
  }
  return language == "zh" ? Language::kChinese : Language::kEnglish;
}

int run(int argc, char** argv) {
  PredictOptions predict;
  AdviseOptions advise;
  CompareOptions compare;
  CostOptions cost;
  FitOptions fit;
  RunOptions run_options;
  CatalogOptions catalog;
  ValidateOptions validate;
  DagOptions dag;
  CalibrateOptions calibrate;
  ReplayOptions replay;
  DiagnoseOptions diagnose;
  std::string language = "en";
  predict.terminal = advise.terminal = compare.terminal = cost.terminal = run_options.terminal =
      catalog.terminal = validate.terminal = calibrate.terminal = replay.terminal =
          diagnose.terminal = fit.terminal = terminal_of_process();

  CLI::App main("offsim predicts what one step of offloaded LLM training costs.", "offsim");
  main.set_version_flag("--version", kVersion);
  main.require_subcommand(0, 1);
  main.allow_extras();
  main.footer("Example:\n  offsim compare --model llama-3.1-8b --hardware h200-pcie5");
  const std::vector<Command> commands{predict_command_line(main, predict, language),
                                      advise_command_line(main, advise, language),
                                      compare_command_line(main, compare, language),
                                      cost_command_line(main, cost),
                                      diagnose_command_line(main, diagnose),
                                      run_command_line(main, run_options),
                                      catalog_command_line(main, catalog),
                                      validate_command_line(main, validate),
                                      calibrate_command_line(main, calibrate),
                                      replay_command_line(main, replay),
                                      fit_command_line(main, fit),
                                      dag_command_line(main, dag)};
  for (const Command& command : commands) {
    command.app->allow_extras();
  }
  try {
    main.parse(argc, argv);
  } catch (const CLI::Success& help) {  // --help, --version
    return main.exit(help, std::cout, std::cerr);
  } catch (const CLI::ParseError& error) {
    throw in_our_words(error);
  }
  const Command* const command = chosen(main, commands);
  if (command == nullptr) {
    std::cout << kShortHelp;
    return 0;
  }
  set_language(language_of(*command->app, language));
  return command->run(std::cout, std::cerr);
}

}  // namespace
}  // namespace offsim::cli

int main(int argc, char** argv) {
  offsim::study::keep_freed_memory();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is one that cannot be written
  try {
    const int code = offsim::cli::run(argc, argv);
    offsim::cli::require_written(std::cout);
    return code;
  } catch (const offsim::InputError& error) {
    std::cerr << (error.place().file.empty() ? "offsim: " : "") << error.what() << "\n";
    return 2;
  } catch (const std::bad_alloc&) {
    std::cerr << "offsim: there is not enough memory on this computer for this question\n";
    return 1;
  } catch (const std::exception& error) {
    std::cerr << "offsim: a mistake of the program, not yours: " << error.what() << "\n";
    return 1;
  }
}
