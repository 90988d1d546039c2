#include "sim/cli/catalog.h"

#include <fmt/format.h>

#include <ostream>

#include "sim/base/quantity.h"
#include "sim/base/table.h"
#include "sim/cli/explain.h"
#include "sim/cli/question.h"
#include "sim/model/tensors.h"
#include "sim/plans/plan.h"

namespace offsim::cli {

namespace {

using Align = Table::Align;
const Place kCommandLine{"command line", 0, 0};

Table::Style style_of(const CatalogOptions& options) {
  return {.indent = 0, .colour = options.terminal.style.colour};
}

void hardware(const CatalogOptions& options, const study::Catalog& catalog, std::ostream& out) {
  if (options.name) {
    const machine::Machine m = catalog.machine(*options.name, kCommandLine);
    out << fmt::format("{}: {}\n", m.name, m.title) << figures_text(catalog, m);
    return;
  }
  Table table({{"name"},
               {"GPUs", Align::kRight},
               {"GPU memory", Align::kRight},
               {"link", Align::kRight},
               {"host memory", Align::kRight},
               {"USD/h", Align::kRight},
               {"title"}});
  for (const std::string& name : catalog.machine_names()) {
    const machine::Machine m = catalog.machine(name, kCommandLine);
    table.add_row({name, std::to_string(m.gpus), show(m.accelerator.memory.value),
                   m.link ? show(m.link->h2d.value) : "unified",
                   m.link ? show(m.host.memory.value) : "",
                   m.price ? fmt::format("{:.2f}", m.price->per_gpu.value) : "", m.title});
  }
  out << table.text(style_of(options)) << "One with every figure: offsim catalog hardware NAME\n";
}

void models(const CatalogOptions& options, const study::Catalog& catalog, std::ostream& out) {
  Table table({{"name"},
               {"family"},
               {"parameters", Align::kRight},
               {"layers", Align::kRight},
               {"hidden", Align::kRight},
               {"heads", Align::kRight},
               {"kv", Align::kRight},
               {"ffn", Align::kRight},
               {"vocab", Align::kRight}});
  const std::vector<std::string> names =
      options.name ? std::vector{*options.name} : catalog.model_names();
  for (const std::string& name : names) {
    const model::Shape s = catalog.model(name, kCommandLine);
    table.add_row({name, std::string(model::to_string(s.architecture)),
                   with_commas(static_cast<double>(model::parameters(s))), std::to_string(s.layers),
                   std::to_string(s.hidden), std::to_string(s.heads), std::to_string(s.kv_heads),
                   std::to_string(s.ffn), std::to_string(s.vocabulary)});
  }
  out << table.text(style_of(options));
}

void plans(const CatalogOptions& options, std::ostream& out) {
  if (options.name) {
    plans::find_plan(*options.name, kCommandLine);
  }
  for (const plans::Plan& plan : plans::registry()) {
    if (!options.name || *options.name == plan.name) {
      out << fmt::format("{}\n  {}\n  {}\n", plan.name, plan.sentence, plan.source);
    }
  }
  out << "What can be set: offsim catalog options NAME\n";
}

std::string values_text(const plans::OptionSpec& spec) {
  using Kind = plans::OptionSpec::Kind;
  switch (spec.kind) {
    case Kind::kFlag:
      return "true or false";
    case Kind::kChoice:
      return fmt::format("{}", fmt::join(spec.choices, " or "));
    case Kind::kVersion:
      return "a version";
    case Kind::kCount:
    case Kind::kNumber:
      return spec.unit.empty() ? "a number" : std::string(spec.unit);
  }
  return "";
}

void plan_options(const CatalogOptions& options, std::ostream& out) {
  if (options.name) {
    plans::find_plan(*options.name, kCommandLine);
  }
  for (const plans::Plan& plan : plans::registry()) {
    if (options.name && *options.name != plan.name) {
      continue;
    }
    for (const plans::OptionSpec& spec : plan.options) {
      out << fmt::format("{}.{} = {}   ({})\n  {}\n", plan.name, spec.name, spec.fallback,
                         values_text(spec), spec.effect);
    }
  }
}

void scenarios(const study::Catalog& catalog, std::ostream& out) {
  Table table({{"name"}, {"title"}});
  for (const std::string& name : catalog.list("scenarios", ".yaml")) {
    table.add_row({name, study::load_scenario(catalog, name).title});
  }
  out << table.text();
}

}  // namespace

int run_catalog(const CatalogOptions& options, std::ostream& out, std::ostream&) {
  const study::Catalog catalog = open_catalog(options.catalog);
  if (options.what == "hardware") {
    hardware(options, catalog, out);
  } else if (options.what == "models") {
    models(options, catalog, out);
  } else if (options.what == "plans") {
    plans(options, out);
  } else if (options.what == "options") {
    plan_options(options, out);
  } else if (options.what == "scenarios") {
    scenarios(catalog, out);
  } else {
    throw InputError(
        kCommandLine, fmt::format("there is no catalog of '{}'", options.what),
        suggest(options.what, {"hardware", "models", "plans", "options", "scenarios"}));
  }
  return 0;
}

}  // namespace offsim::cli
