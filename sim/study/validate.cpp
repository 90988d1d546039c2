#include "sim/study/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "sim/base/quantity.h"
#include "sim/plans/plan.h"
#include "sim/study/predict.h"
#include "sim/study/scenario.h"

namespace offsim::study {

namespace {

constexpr double kJudgedShare = 0.02;

double error(double predicted, double measured) { return predicted / measured - 1; }

Seconds predicted_part(const Prediction& p, const std::string& name, const Place& place) {
  const auto phase = [&](const char* key) {
    const auto found = p.phases.find(key);
    return found == p.phases.end() ? Seconds(0) : found->second;
  };
  const auto label = [&](std::string_view key) {
    Seconds time(0);
    for (const Spent& spent : p.spent) {
      time += spent.label == key ? spent.time : Seconds(0);
    }
    return time;
  };
  if (name == "forward" || name == "backward") {
    return phase(name.c_str());
  }
  if (name == "step") {
    return phase("optimizer");
  }
  if (name == "forward and backward") {
    return phase("forward") + phase("backward");
  }
  if (name == "clip" || name == "Adam") {
    return label(name);
  }
  if (name == "refresh and zero") {
    return phase("optimizer") - label("clip") - label("Adam");
  }
  throw InputError(place, fmt::format("there is no part '{}'", name),
                   suggest(name, {"forward", "backward", "step", "forward and backward", "clip",
                                  "Adam", "refresh and zero"}));
}

bool known_plan(const std::string& name) {
  for (const plans::Plan& plan : plans::registry()) {
    if (plan.name == name) {
      return true;
    }
  }
  return false;
}

// Errors are shares of what was measured.
template <class Quantity>
Quantity positive(Quantity measured, std::string_view what, const Place& place) {
  if (!(measured > Quantity(0))) {
    throw InputError(place, fmt::format("{} is zero", what), "expected more");
  }
  return measured;
}

Bytes measured_bytes(View& map, std::string_view key, const PoolReport* pool) {
  if (pool == nullptr) {
    throw InputError(map.place_of(key), fmt::format("{} is of a memory that is not there", key),
                     "expected none: this machine has one memory");
  }
  return positive(map.bytes(key), key, map.place_of(key));
}

void compare(LedgerRow& row, const Prediction& p, View& map) {
  row.step.predicted = p.step;
  if (auto parts = map.find_map("parts")) {
    for (const std::string& name : parts->keys()) {
      const Place place = parts->place_of(name);
      const Seconds measured = positive(parts->time(name), name, place);
      row.parts.push_back({name,
                           {measured, predicted_part(p, name, place)},
                           measured.value >= kJudgedShare * row.step.measured.value});
    }
    parts->finish();
  }
  if (map.has("gpu_peak")) {
    const PoolReport* gpu = p.pool("gpu");
    row.gpu = {measured_bytes(map, "gpu_peak", gpu), gpu->peak};
  }
  if (map.has("host_resident")) {
    const PoolReport* host = p.pool("host");
    row.host = {measured_bytes(map, "host_resident", host), host->resident + host->fixed};
  }
}

LedgerRow read_row(const Catalog& catalog, const Node& node, const Given& machine,
                   const std::string& file) {
  View map(node, "row");
  LedgerRow row;
  row.file = file;
  row.id = map.text("id");
  Scenario s;
  s.models = {{map.text("model"), map.place_of("model")}};
  s.machines = {machine};
  s.plans = {read_given_plan(map.need("plan"))};
  s.workload = read_given_workload(map.map("workload"));
  row.plan = s.plans.front().name.text;
  row.calibrates = map.text("calibrates", "");
  row.step.measured = positive(map.time("step"), "step", map.place_of("step"));
  map.finish({"parts", "gpu_peak", "host_resident"});  // mistakes before work
  if (!known_plan(row.plan)) {
    row.missing = "no such plan yet";
    return row;
  }
  const std::optional<Given>& own = s.plans.front().workload.micro_batch;
  const std::optional<Given>& batch = own ? own : s.workload.micro_batch;
  if (batch && batch->text == "largest") {
    throw InputError(batch->place, "micro_batch of a measured step is 'largest'",
                     "expected the number that it was measured with");
  }
  const Case c = std::move(cases(catalog, s).front());
  try {
    compare(row, predict(c.job), map);
  } catch (const InputError& refusal) {
    throw refusal.at(c.place);
  }
  return row;
}

std::string percent(double e) { return fmt::format("{:+.1f} %", 100 * e); }
std::string seconds(Seconds t) { return fmt::format("{:.4f}", t.value); }

std::string bold(const std::string& text, bool colour) {
  return colour ? "\x1b[1m" + text + "\x1b[0m" : text;
}

// A line below a row's name.
std::string line(std::string_view part, std::string_view measured, std::string_view predicted,
                 std::string_view error) {
  return fmt::format("    {:<22}  {:>9}  {:>9}  {:>8}\n", part, measured, predicted, error);
}

std::string time_line(std::string_view name, const LedgerPart& part) {
  std::string text = line(name, seconds(part.time.measured), seconds(part.time.predicted),
                          percent(error(part.time.predicted.value, part.time.measured.value)));
  return part.judged ? text : text.insert(text.size() - 1, " *");
}

std::string bytes_line(std::string_view name, const std::optional<Compared<Bytes>>& bytes) {
  const auto two = [](Bytes b) { return fmt::format("{:.2f}", gib(b)); };
  return bytes ? line(name, two(bytes->measured), two(bytes->predicted),
                      percent(error(gib(bytes->predicted), gib(bytes->measured))))
               : "";
}

std::string row_text(const LedgerRow& row) {
  std::string out = fmt::format("  {}{}\n", row.id, row.calibrates.empty() ? "" : " (c)");
  if (!row.missing.empty()) {
    return out + fmt::format("    {:<22}  {:>9}  {}\n", row.plan, seconds(row.step.measured),
                             row.missing);
  }
  out += time_line("step, s", {"", row.step, true});
  for (const LedgerPart& part : row.parts) {
    out += time_line("  " + part.name, part);
  }
  return out + bytes_line("GPU peak, GiB", row.gpu) + bytes_line("host, GiB", row.host);
}

// Errors of one file's rows, a line each.
std::string summary(const Ledger& all, const std::string& file, bool colour) {
  Ledger ledger;
  for (const LedgerRow& row : all.rows) {
    if (row.file == file) {
      ledger.rows.push_back(row);
    }
  }
  const auto line = [](auto what, auto count, auto mean, auto worst) {
    return fmt::format("  {:<9}  {:>3}  {:>7}  {:>8}", what, count, mean, worst);
  };
  std::string out = bold(line("judged", "n", "mean", "worst in"), colour) + "\n";
  for (const auto& [what, name] :
       {std::pair{LedgerWhat::kStep, "step time"}, std::pair{LedgerWhat::kParts, "parts"},
        std::pair{LedgerWhat::kGpu, "GPU peak"}, std::pair{LedgerWhat::kHost, "host"}}) {
    const LedgerError e = ledger_error(ledger, what);
    if (e.count > 0) {
      out += line(name, e.count, fmt::format("{:.1f} %", 100 * e.mean),
                  fmt::format("{:.1f} %", 100 * e.worst)) +
             fmt::format("\n    {}\n", e.worst_id);
    }
  }
  return out;
}

}  // namespace

LedgerError ledger_error(const Ledger& ledger, LedgerWhat what) {
  LedgerError out;
  const auto take = [&](const LedgerRow& row, double predicted, double measured,
                        const std::string& part) {
    const double e = std::abs(error(predicted, measured));
    out.mean += e;
    ++out.count;
    if (e >= out.worst) {
      out.worst = e;
      out.worst_id = row.id + part;
    }
  };
  for (const LedgerRow& row : ledger.rows) {
    if (!row.missing.empty() || !row.calibrates.empty()) {
      continue;
    }
    if (what == LedgerWhat::kStep) {
      take(row, row.step.predicted.value, row.step.measured.value, "");
    }
    for (const LedgerPart& part : row.parts) {
      if (what == LedgerWhat::kParts && part.judged) {
        take(row, part.time.predicted.value, part.time.measured.value, ", " + part.name);
      }
    }
    const auto& bytes = what == LedgerWhat::kGpu ? row.gpu : row.host;
    if ((what == LedgerWhat::kGpu || what == LedgerWhat::kHost) && bytes) {
      take(row, gib(bytes->predicted), gib(bytes->measured), "");
    }
  }
  out.mean = out.count == 0 ? 0 : out.mean / static_cast<double>(out.count);
  return out;
}

Ledger validate(const Catalog& catalog, const std::string& only) {
  Ledger ledger;
  const std::vector<std::string> names = catalog.list("validation", ".yaml");
  if (names.empty()) {
    throw InputError({catalog.place_of("validation")}, "no measured steps are in this folder",
                     "expected a YAML file for each machine");
  }
  if (!only.empty() && std::ranges::find(names, only) == names.end()) {
    throw InputError({"command line"}, fmt::format("there are no measured steps '{}'", only),
                     suggest(only, names));
  }
  for (const std::string& name : names) {
    if (!only.empty() && name != only) {
      continue;
    }
    const std::string path = "validation/" + name + ".yaml";
    const Node document =
        parse_document(*catalog.read(path), catalog.place_of(path), Syntax::kYaml);
    View map(document, "validation");
    const Given machine{map.text("machine"), map.place_of("machine")};
    map.text("from");
    const Node& rows = map.need("rows");
    if (rows.kind != Node::Kind::kList || rows.items.empty()) {
      throw InputError(rows.place, "rows is not a list of rows", "expected [{id: ..., ...}]");
    }
    for (const Node& row : rows.items) {
      ledger.rows.push_back(read_row(catalog, row, machine, path));
    }
    map.finish();
  }
  return ledger;
}

std::string ledger_text(const Ledger& ledger, bool colour) {
  std::string out;
  std::string file;
  const auto finish_file = [&] {
    out += file.empty() ? "" : "\n" + summary(ledger, file, colour) + "\n";
  };
  std::string header = line("", "measured", "predicted", "error");
  header.pop_back();
  for (const LedgerRow& row : ledger.rows) {
    if (row.file != file) {
      finish_file();
      file = row.file;
      out += bold(fmt::format("{}\n{}", file, header), colour) + "\n";
    }
    out += row_text(row);
  }
  finish_file();
  return out +
         "Seconds and GiB. Of the parts, \"step\" is the optimizer's.\n"
         "*    under 2 % of its step: listed, not judged\n"
         "(c)  a figure of the machine file was taken from this row:\n"
         "     not in the means\n";
}

std::string ledger_json(const Ledger& ledger) {
  const auto text = [](const std::string& s) { return nlohmann::json(s).dump(); };
  std::string rows;
  for (const LedgerRow& row : ledger.rows) {
    std::string parts;
    for (const LedgerPart& part : row.parts) {
      parts += fmt::format("{}{}: {{\"measured_s\": {}, \"predicted_s\": {}, \"judged\": {}}}",
                           parts.empty() ? "" : ", ", text(part.name), part.time.measured.value,
                           part.time.predicted.value, part.judged);
    }
    std::string memory;
    for (const auto& [name, bytes] : {std::pair{"gpu", &row.gpu}, {"host", &row.host}}) {
      if (*bytes) {
        memory += fmt::format(", \"{}_bytes\": {{\"measured\": {}, \"predicted\": {}}}", name,
                              (*bytes)->measured.value, (*bytes)->predicted.value);
      }
    }
    rows += fmt::format(
        "{}\n  {{\"id\": {}, \"plan\": {}, \"missing\": {}, \"calibrates\": {}, "
        "\"step\": {{\"measured_s\": {}, \"predicted_s\": {}}}, \"parts\": {{{}}}{}}}",
        rows.empty() ? "" : ",", text(row.id), text(row.plan), text(row.missing),
        text(row.calibrates), row.step.measured.value, row.step.predicted.value, parts, memory);
  }
  return "{\"schema\": \"offsim.ledger/1\", \"rows\": [" + rows + "\n]}\n";
}

}  // namespace offsim::study
