#include "sim/cli/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <ostream>

#include "sim/base/quantity.h"
#include "sim/base/table.h"
#include "sim/base/text.h"
#include "sim/calibrate/drift.h"
#include "sim/calibrate/machine_file.h"
#include "sim/cli/kernels_program.h"
#include "sim/cli/question.h"
#include "sim/report/layout.h"

namespace offsim::cli {

namespace {

namespace fs = std::filesystem;
using Align = Table::Align;

// Whose GPU and link stand in where there is none: a machine that many people have.
constexpr const char* kDefaultBase = "workstation-pcie4-4090";

// "here/mine.yaml" has its records in "here/mine.jsonl".
std::string records_of(const std::string& file, const char* flag) {
  if (!file.ends_with(".yaml") || fs::path(file).stem() == ".yaml" || printable(file) != file) {
    throw InputError(kCommandLine, fmt::format("{} is '{}'", flag, printable(file)),
                     "expected a file that ends in .yaml");
  }
  return fs::path(file).replace_extension(".jsonl").string();
}

// Before minutes are spent on measuring.
std::vector<std::string> arguments_of(const CalibrateOptions& options, bool quick) {
  std::vector<std::string> arguments{"measure"};
  if (quick) {
    arguments.emplace_back("--quick");
  }
  if (options.only) {
    arguments.insert(arguments.end(), {"--only", *options.only});
  }
  if (options.file) {
    arguments.insert(arguments.end(), {"--file", *options.file});
  }
  if (options.file_size) {
    const Bytes size = parse_bytes(*options.file_size, kCommandLine);
    arguments.insert(arguments.end(), {"--file-bytes", std::to_string(size.value)});
  }
  return arguments;
}

std::string measure(const CalibrateOptions& options, bool quick, std::ostream& err) {
  if (options.records) {
    return read_file(*options.records);
  }
  return run_kernels(find_kernels(options.kernels), arguments_of(options, quick), "measuring",
                     options.terminal, err);
}

// Options of measuring say nothing about records that are there.
void refuse_without_effect(const CalibrateOptions& options) {
  const auto refuse = [](const char* flag, const char* other) {
    throw InputError(kCommandLine, fmt::format("{} has no effect beside {}", flag, other),
                     "expected one of them");
  };
  if (options.records) {
    for (const auto& [flag, given] : {std::pair{"--only", options.only.has_value()},
                                      {"--quick", options.quick},
                                      {"--file", options.file.has_value()},
                                      {"--file-size", options.file_size.has_value()},
                                      {"--kernels", options.kernels.has_value()}}) {
      if (given) {
        refuse(flag, "--records");
      }
    }
  }
  if (!options.check.empty() && (options.base || options.catalog)) {
    refuse(options.base ? "--base" : "--catalog", "--check");
  }
  if (options.file_size && !options.file) {
    refuse("--file-size", "no --file");
  }
}

std::string machine_text(const calibrate::Environment& e) {
  return fmt::format("{}, {} cores of {}, {}", e.gpu.empty() ? "no GPU" : e.gpu, e.cores, e.cpu,
                     report::gib_text(Bytes(e.memory_bytes)));
}

// Benches with the same reason stand on one line.
void write_skipped(const calibrate::Records& records, const report::TextStyle& style,
                   std::ostream& out) {
  std::vector<std::pair<std::string, std::string>> reasons;  // in the order of the benches
  for (const calibrate::Skipped& s : records.skipped) {
    const auto found =
        std::ranges::find(reasons, s.reason, &std::pair<std::string, std::string>::first);
    if (found == reasons.end()) {
      reasons.emplace_back(s.reason, s.bench);
    } else {
      found->second += ", " + s.bench;
    }
  }
  for (const auto& [reason, benches] : reasons) {
    out << report::paragraph("  ", printable(fmt::format("{}: {}", benches, reason)), style);
  }
}

void write_answer(const CalibrateOptions& options, const calibrate::Records& records,
                  const calibrate::MachineFile& file, const std::string& records_path,
                  std::ostream& out) {
  const report::TextStyle& style = options.terminal.style;
  out << report::paragraph("", machine_text(records.environment), style);
  Table table({{"figure"}, {"value"}, {"spread", Align::kRight}, {"residual", Align::kRight}});
  for (const calibrate::Fitted& f : file.fitted) {
    table.add_row({f.name, f.value, fmt::format("{:.0f} %", f.spread * 100),
                   f.residual ? fmt::format("{:.1f} %", *f.residual * 100) : ""});
  }
  out << table.text({.indent = 2, .colour = style.colour});
  if (!file.kept.empty() || !records.skipped.empty()) {
    out << "not measured\n";
    if (!file.kept.empty()) {
      out << report::paragraph(
          "  ", report::join(file.kept, "; ") + "; --base names another system", style);
    }
    write_skipped(records, style, out);
  }
  out << report::warnings_text(file.left_out, style)
      << report::paragraph("", fmt::format("wrote {} and {}", options.out, records_path), style)
      << report::next_text(shell_line({"offsim", "compare", "--model", "llama-3.1-8b", "--hardware",
                                       options.out}),
                           style);
}

// The records of `file` beside those of now.
int check(const CalibrateOptions& options, std::ostream& out, std::ostream& err) {
  const std::string path = records_of(options.check, "--check");
  const calibrate::Records then = calibrate::parse_records(read_file(path), path);
  const std::string text = measure(options, options.quick || then.environment.quick, err);
  const calibrate::Records now =
      calibrate::parse_records(text, options.records.value_or("offsim-kernels"));
  const report::TextStyle& style = options.terminal.style;
  Table table({{"bench"},
               {"points", Align::kRight},
               {"speed", Align::kRight},
               {"noise", Align::kRight},
               {"furthest", Align::kRight},
               {""}});
  std::vector<std::string> drifted;
  const std::vector<calibrate::Drift> drifts = calibrate::drifts(then, now);
  if (drifts.empty()) {
    throw InputError({path}, "has no point that is measured now", "expected the same benches");
  }
  if (then.environment.cpu != now.environment.cpu || then.environment.gpu != now.environment.gpu) {
    out << report::warnings_text({"another machine: " + machine_text(then.environment)}, style);
  }
  for (const calibrate::Drift& d : drifts) {
    table.add_row({d.bench, std::to_string(d.points), fmt::format("x{:.2f}", d.median),
                   fmt::format("{:.0f} %", d.noise * 100), fmt::format("x{:.2f}", d.worst),
                   d.drifted() ? "drifted" : ""});
    if (d.drifted()) {
      drifted.push_back(d.bench);
    }
  }
  out << report::paragraph(
             "",
             fmt::format("{}: now over {}", machine_text(now.environment), then.environment.day()),
             style)
      << table.text({.indent = 2, .colour = style.colour});
  if (drifted.empty()) {
    out << "nothing has drifted: medians are within 10 %, or three times the noise\n";
  } else {
    out << report::paragraph("", fmt::format("drifted: {}", report::join(drifted, ", ")), style)
        << report::next_text(shell_line({"offsim", "calibrate", "--out", options.check}), style);
  }
  return 0;
}

}  // namespace

int run_calibrate(const CalibrateOptions& options, std::ostream& out, std::ostream& err) {
  if (options.out.empty() == options.check.empty()) {
    throw InputError(kCommandLine,
                     options.out.empty() ? "--out is missing" : "--out and --check are given",
                     "expected --out FILE to measure, or --check FILE to compare with it");
  }
  refuse_without_effect(options);
  if (!options.check.empty()) {
    return check(options, out, err);
  }
  const std::string records_path = records_of(options.out, "--out");
  require_writable({{"--out", options.out}, {"its records", records_path}});
  const study::Catalog catalog = open_catalog(options.catalog);
  if (options.base) {
    calibrate::require_system(catalog.hardware(), *options.base);
  }
  const std::string text = measure(options, options.quick, err);
  const calibrate::Records records =
      calibrate::parse_records(text, options.records.value_or("offsim-kernels"));
  const std::string of_gpu = calibrate::system_of_gpu(records, catalog.hardware());
  const std::string base =
      options.base.value_or(of_gpu.empty() ? std::string(kDefaultBase) : of_gpu);
  const calibrate::MachineFile file = calibrate::machine_file(
      records, catalog.hardware(), base, fs::path(records_path).filename().string());
  write_all({{"--out", options.out, [&](std::ostream& to) { to << file.text; }},
             {"the records", records_path, [&](std::ostream& to) { to << text; }}},
            out);
  write_answer(options, records, file, records_path, out);
  return 0;
}

}  // namespace offsim::cli
