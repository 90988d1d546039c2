#include "sim/import/import.h"

#include <fmt/format.h>

#include <cctype>
#include <filesystem>

#include "sim/base/hjson.h"
#include "sim/base/text.h"
#include "sim/import/accelerate.h"
#include "sim/import/deepspeed.h"

namespace offsim::imports {

namespace {

constexpr const char* kDeepSpeed = "0.19.6";  // what the plans model unless told otherwise

// The text behind it, or nothing; the alphabet of URLs is DeepSpeed's, the usual one is taken too.
std::optional<std::string> from_base64(const std::string& text) {
  std::string out;
  std::uint32_t bits = 0;
  int held = 0;
  for (const char c : text.substr(0, text.find('='))) {
    const std::size_t upper = std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZ").find(c);
    const std::size_t lower = std::string_view("abcdefghijklmnopqrstuvwxyz").find(c);
    const std::size_t digit = std::string_view("0123456789").find(c);
    std::uint32_t value = 0;
    if (upper != std::string_view::npos) {
      value = static_cast<std::uint32_t>(upper);
    } else if (lower != std::string_view::npos) {
      value = static_cast<std::uint32_t>(lower + 26);
    } else if (digit != std::string_view::npos) {
      value = static_cast<std::uint32_t>(digit + 52);
    } else if (c == '-' || c == '+') {
      value = 62;
    } else if (c == '_' || c == '/') {
      value = 63;
    } else {
      return std::nullopt;
    }
    bits = bits << 6 | value;
    held += 6;
    if (held >= 8) {
      held -= 8;
      out += static_cast<char>(bits >> held & 0xff);
    }
  }
  return out;
}

bool is_yaml(const std::string& path) { return path.ends_with(".yaml") || path.ends_with(".yml"); }

void warn_strict(const std::string& text, const std::string& path, bool hugging_face,
                 Findings& findings) {
  try {
    parse_document(text, path, Syntax::kJson);
  } catch (const InputError& error) {
    findings.warn(error.place(), hugging_face
                                     ? "DeepSpeed reads this, and the Trainer, which wants strict "
                                       "JSON, does not"
                                     : "DeepSpeed reads this, but it is no strict JSON, which "
                                       "Hugging Face's Trainer wants");
  }
}

void read_config(const Ask& ask, Around around, Findings& findings, Imported& out) {
  const std::string& config = *ask.config;
  out.name = config;
  std::error_code ignored;
  if (!std::filesystem::exists(config, ignored) && config.size() >= 16) {
    const auto decoded = from_base64(config);
    if (decoded && decoded->find('{') != std::string::npos) {
      out.name = "base64 text";
      const Node root = parse_hjson(*decoded, out.name);
      read_deepspeed(root, std::move(around), findings, out.plan, out.workload);
      return;
    }
  }
  const std::string text = read_file(config);
  if (!is_yaml(config)) {
    const Node root = parse_hjson(text, config);
    warn_strict(text, config, around.hugging_face, findings);
    read_deepspeed(root, std::move(around), findings, out.plan, out.workload);
    return;
  }
  const Node root = parse_document(text, config, Syntax::kYaml);
  if (!is_accelerate(root)) {
    refuse_other_tools(root);
  }
  const std::size_t slash = config.rfind('/');
  read_accelerate(root, slash == std::string::npos ? "" : config.substr(0, slash + 1),
                  std::move(around), findings, out.plan, out.workload);
}

// A path of the machine that trains may not be here: then its name must do.
bool is_same_file(const std::string& here, const std::string& named) {
  std::error_code missing;
  return here == named || std::filesystem::equivalent(here, named, missing) ||
         (!std::filesystem::exists(named, missing) &&
          std::filesystem::path(here).filename() == std::filesystem::path(named).filename());
}

// The Trainer's --deepspeed names the configuration where --ds-config does not. Without a value it
// is the flag of DeepSpeed's own arguments (deepspeed.add_config_arguments).
std::optional<std::string> config_of(const Ask& ask, const Trainer& trainer) {
  const study::Given* const named = trainer.find("deepspeed");
  if (named == nullptr || (named->text.empty() && ask.config)) {
    return ask.config;
  }
  if (named->text.empty()) {
    throw InputError(named->place, "--deepspeed names no file", "expected it as --ds-config FILE");
  }
  if (ask.config && !is_same_file(*ask.config, named->text)) {
    throw InputError(named->place,
                     fmt::format("--deepspeed is {}, and --ds-config {}",
                                 printable(named->text, 200), printable(*ask.config, 200)),
                     "expected the same file");
  }
  return ask.config ? ask.config : std::optional(named->text);
}

void merge(study::GivenWorkload& under, const study::GivenWorkload& over, bool only_absent) {
  for (const auto& [key, field] : study::workload_fields()) {
    if (over.*field && !(only_absent && under.*field)) {
      under.*field = over.*field;
    }
  }
}

}  // namespace

Imported import_question(const Ask& ask) {
  Imported out;
  Findings findings, trainers;
  std::optional<Trainer> trainer;
  if (ask.trainer) {
    trainer.emplace(*ask.trainer, trainers);
  }
  Around around;
  around.trainer = trainer ? &*trainer : nullptr;
  around.hugging_face = trainer.has_value();
  around.flags = ask.flags;
  around.gpus = trainer ? trainer->workload().gpus : std::nullopt;
  around.version = ask.deepspeed_version.value_or(kDeepSpeed);
  around.version_given = ask.deepspeed_version.has_value();
  around.shape = ask.shape;
  Ask asked = ask;
  if (trainer) {
    asked.config = config_of(ask, *trainer);
  }
  if (asked.config) {
    read_config(asked, around, findings, out);
  }
  findings.warnings.insert(findings.warnings.end(), trainers.warnings.begin(),
                           trainers.warnings.end());
  findings.refusals.insert(findings.refusals.end(), trainers.refusals.begin(),
                           trainers.refusals.end());
  findings.settle();
  if (trainer) {
    merge(out.workload, trainer->workload(), true);
  }
  merge(out.workload, ask.flags, false);
  out.settings = std::move(findings.settings);
  out.settings.insert(out.settings.end(), trainers.settings.begin(), trainers.settings.end());
  out.warnings = std::move(findings.warnings);
  out.names = std::move(findings.names);
  return out;
}

std::string Imported::in_its_words(std::string text) const {
  const auto of_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '-';
  };
  for (const auto& [ours, own] : names) {
    for (std::size_t at = 0; (at = text.find(ours, at)) != std::string::npos;) {
      const std::size_t end = at + ours.size();
      const bool whole =
          (at == 0 || !of_word(text[at - 1])) && (end == text.size() || !of_word(text[end]));
      text.replace(at, whole ? ours.size() : 0, whole ? own : "");
      at += whole ? own.size() : ours.size();
    }
  }
  return text;
}

InputError Imported::in_its_words(const InputError& refusal) const {
  return InputError(refusal.place(), in_its_words(refusal.wrong()),
                    in_its_words(refusal.expected()))
      .at(plan.name.place);
}

}  // namespace offsim::imports
