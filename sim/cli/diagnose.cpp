#include "sim/cli/diagnose.h"

#include <fstream>
#include <iostream>

#include "sim/base/config.h"
#include "sim/report/diagnosis.h"

namespace offsim::cli {

namespace {

logs::Log log_of(const std::string& path) {
  if (path == "-") {
    return logs::read_log(std::cin, "standard input");
  }
  require_file(path);
  std::ifstream in(path, std::ios::binary);
  return logs::read_log(in, path);
}

// What to run: on that machine where there is a suspect, else here.
std::string next_command(const DiagnoseOptions& options, const study::Diagnosis& found) {
  if (!found.suspects.empty()) {
    return found.suspects.front().command;
  }
  const Named named{options.model, options.hardware, options.catalog};
  return found.verdict == study::Verdict::kAsExpected
             ? compare_command(named, found.job)
             : predict_command(named, found.job) + " --explain";
}

}  // namespace

int run_diagnose(const DiagnoseOptions& options, std::ostream& out, std::ostream&) {
  const study::Catalog catalog = open_catalog(options.catalog);
  const study::Scenario scenario =
      scenario_of(options.model, options.hardware, options.plan, options.work);
  study::Case c =
      only_case(catalog, scenario, "diagnose", "expected those of the run that wrote the log");
  const logs::Log log = log_of(options.log);
  const study::Diagnosis found = study::diagnose(std::move(c.job), log);
  const bool data_on_out =
      write_all({{"--json", options.json,
                  [&](std::ostream& to) { to << report::diagnosis_json(found, log); }}},
                out);
  if (data_on_out) {
    return 0;
  }
  const report::TextStyle& style = options.terminal.style;
  out << report::diagnosis_text(found, log, style)
      << report::next_text(next_command(options, found), style);
  return 0;
}

}  // namespace offsim::cli
