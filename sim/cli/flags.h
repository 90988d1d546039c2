// Flags that several commands have, each declared once, with CLI11.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "sim/cli/asked.h"
#include "sim/cli/question.h"

namespace CLI {
class App;
}

namespace offsim::cli {

enum class Asks : std::uint8_t { kOnePlan, kSeveralPlans };
// --model, --hardware, --plan or --plans, and those of the work.
void add_question_flags(CLI::App* app, std::string& model, std::string& hardware, std::string& plan,
                        WorkFlags& work, Asks asks);
template <class Options>
void add_question_flags(CLI::App* app, Options& options, Asks asks) {
  add_question_flags(app, options.model, options.hardware, options.plan, options.work, asks);
}

// `instead`: what a configuration's plan is beside those of other flags.
void add_config_flags(CLI::App* app, StepQuestion& options, const std::string& instead);
void add_catalog_flag(CLI::App* app, std::optional<std::string>& catalog);
void add_json_flag(CLI::App* app, std::string& json);
void add_language_flag(CLI::App* app, std::string& language);
// --price and --json.
void add_answer_flags(CLI::App* app, std::optional<std::string>& price, std::string& json);

}  // namespace offsim::cli
