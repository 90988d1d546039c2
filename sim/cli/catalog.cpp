#include "sim/cli/catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>

#include "sim/base/quantity.h"
#include "sim/base/table.h"
#include "sim/base/text.h"
#include "sim/cli/explain.h"
#include "sim/cli/question.h"
#include "sim/model/tensors.h"
#include "sim/plans/plan.h"
#include "sim/report/layout.h"

namespace offsim::cli {

namespace {

using Align = Table::Align;

Table::Style style_of(const CatalogOptions& options) {
  return {.indent = 0, .colour = options.terminal.style.colour};
}

bool fits(const Table& table, const report::TextStyle& style) {
  const std::string text = table.text();
  return std::ranges::all_of(report::lines_of(text), [&](const std::string& line) {
    return display_width(line) <= report::page_width(style);
  });
}

// One line a machine where the page has room for it; otherwise its name and title, then its
// numbers.
void machines(const CatalogOptions& options, const study::Catalog& catalog, std::ostream& out) {
  const std::vector<std::string> names = catalog.machine_names();
  std::vector<Table::Column> columns{{"GPUs", Align::kRight},
                                     {"GPU memory", Align::kRight},
                                     {"link", Align::kRight},
                                     {"host memory", Align::kRight},
                                     {"USD/h", Align::kRight}};
  Table stacked(columns);
  columns.insert(columns.begin(), {"name"});
  columns.push_back({"title"});
  Table wide(columns);
  std::vector<std::string> titles;
  for (const std::string& name : names) {
    const machine::Machine m = catalog.machine(name, kCommandLine);
    std::vector<std::string> cells{std::to_string(m.gpus), show(m.accelerator.memory.value),
                                   m.link ? show(m.link->h2d.value) : "unified",
                                   m.link ? show(m.host.memory.value) : "",
                                   m.price ? fmt::format("{:.2f}", m.price->per_gpu.value) : ""};
    stacked.add_row(cells);
    cells.insert(cells.begin(), name);
    cells.push_back(m.title);
    wide.add_row(cells);
    titles.push_back(m.title);
  }
  const report::TextStyle& style = options.terminal.style;
  if (fits(wide, style)) {
    out << wide.text(style_of(options));
  } else {
    const auto rows = report::lines_of(stacked.text({.indent = 2, .colour = style.colour}));
    out << rows.front() << "\n";
    for (std::size_t i = 0; i < names.size(); ++i) {
      const std::string title = report::paragraph("", names[i] + ": " + titles[i], style);
      out << report::paint(names[i], report::Ink::kBold, style) << title.substr(names[i].size())
          << rows[i + 1] << "\n";
    }
  }
  out << "One with every figure: offsim catalog hardware NAME\n";
}

void hardware(const CatalogOptions& options, const study::Catalog& catalog, std::ostream& out) {
  if (!options.name) {
    machines(options, catalog, out);
    return;
  }
  const machine::Machine m = catalog.machine(*options.name, kCommandLine);
  const report::TextStyle& style = options.terminal.style;
  out << report::paragraph("", fmt::format("{}: {}", m.name, m.title), style)
      << figures_text(catalog, m, style);
}

void models(const CatalogOptions& options, const study::Catalog& catalog, std::ostream& out) {
  Table table({{"name"},
               {"family"},
               {"params", Align::kRight},
               {"layers", Align::kRight},
               {"hidden", Align::kRight},
               {"q/kv", Align::kRight},
               {"ffn", Align::kRight},
               {"vocab", Align::kRight}});
  const std::vector<std::string> names =
      options.name ? std::vector{*options.name} : catalog.model_names();
  for (const std::string& name : names) {
    const model::Shape s = catalog.model(name, kCommandLine);
    table.add_row({name, std::string(model::to_string(s.architecture)),
                   report::parameters_text(static_cast<double>(model::parameters(s))),
                   std::to_string(s.layers), std::to_string(s.hidden),
                   fmt::format("{}/{}", s.heads, s.kv_heads), std::to_string(s.kinds.back().ffn),
                   std::to_string(s.vocabulary)});
  }
  out << table.text(style_of(options));
}

void plans(const CatalogOptions& options, std::ostream& out) {
  if (options.name) {
    plans::find_plan(*options.name, kCommandLine);
  }
  const report::TextStyle& style = options.terminal.style;
  for (const plans::Plan& plan : plans::registry()) {
    if (!options.name || *options.name == plan.name) {
      out << report::paint(plan.name, report::Ink::kBold, style) << "\n"
          << report::paragraph("  ", plan.sentence, style)
          << report::paragraph("  ", plan.source, style);
    }
  }
  out << "What can be set: offsim catalog options NAME\n";
}

// "none, cpu or nvme".
std::string choices_text(std::vector<std::string> choices) {
  const std::string last = choices.back();
  choices.pop_back();
  return choices.empty() ? last : fmt::format("{} or {}", fmt::join(choices, ", "), last);
}

std::string values_text(const plans::OptionSpec& spec) {
  using Kind = plans::OptionSpec::Kind;
  switch (spec.kind) {
    case Kind::kFlag:
      return "true or false";
    case Kind::kChoice:
      return choices_text(spec.choices);
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
  const report::TextStyle& style = options.terminal.style;
  for (const plans::Plan& plan : plans::registry()) {
    if (options.name && *options.name != plan.name) {
      continue;
    }
    for (const plans::OptionSpec& spec : plan.options) {
      const std::string name = fmt::format("{}.{}", plan.name, spec.name);
      out << report::paint(name, report::Ink::kBold, style) << " = " << spec.fallback << "\n"
          << report::paragraph("  ", fmt::format("{} ({})", spec.effect, values_text(spec)), style);
    }
  }
}

void scenarios(const CatalogOptions& options, const study::Catalog& catalog, std::ostream& out) {
  const report::TextStyle& style = options.terminal.style;
  const std::vector<std::string> names =
      options.name ? std::vector{*options.name} : catalog.list("scenarios", ".yaml");
  std::string text;  // whole, or a refusal alone
  for (const std::string& name : names) {
    text += report::paint(name, report::Ink::kBold, style) + "\n" +
            report::paragraph("  ", study::load_scenario(catalog, name).title, style);
  }
  out << text << "Answers: offsim run NAME\n";
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
    scenarios(options, catalog, out);
  } else {
    throw InputError(
        kCommandLine, fmt::format("there is no catalog of '{}'", options.what),
        suggest(options.what, {"hardware", "models", "plans", "options", "scenarios"}));
  }
  return 0;
}

}  // namespace offsim::cli
