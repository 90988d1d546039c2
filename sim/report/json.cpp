#include "sim/report/json.h"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "sim/base/error.h"
#include "sim/model/tensors.h"

namespace offsim::report {

namespace {

using Json = nlohmann::ordered_json;
using study::PoolReport;
using study::Prediction;

std::int64_t whole(double bytes) { return std::llround(bytes); }

// A value in the type that its option declares; a word in place of one stays text.
Json option_json(const plans::Options& options, const plans::OptionSpec& spec) {
  const std::string& text = options.text(spec.name);
  if (text == "by version" || text == "auto") {
    return text;
  }
  switch (spec.kind) {
    case plans::OptionSpec::Kind::kFlag:
      return text == "true";
    case plans::OptionSpec::Kind::kCount:
      return options.count(spec.name);
    case plans::OptionSpec::Kind::kNumber:
      return options.number(spec.name);
    default:
      return text;
  }
}

Json scenario_json(const plans::Job& job) {
  const plans::Workload& work = job.workload;
  Json options = Json::object();
  for (const plans::OptionSpec& spec : job.plan->options) {
    options[std::string(spec.name)] = option_json(job.options, spec);
  }
  const bool adapters = job.shape.adapters.any();
  return {{"model", job.shape.name},
          {"parameters", model::parameters(job.shape)},
          {"active_parameters", model::active_parameters(job.shape)},
          {"trained_parameters", model::trained_parameters(job.shape)},
          {"hardware", job.machine.name},
          {"plan", job.plan->name},
          {"micro_batch", work.micro_batch},
          {"sequence", work.sequence},
          {"accumulation", work.accumulation},
          {"gpus", work.gpus},
          {"checkpointing", to_string(work.checkpointing)},
          {"activation_offload", to_string(work.activation_offload)},
          {"precision", to_string(work.precision)},
          {"lora_rank", job.shape.adapters.rank},
          {"lora_targets", adapters ? Json(model::to_string(job.shape.adapters.targets)) : Json()},
          {"base", adapters ? Json(model::to_string(job.shape.adapters.base)) : Json()},
          {"phase_sync", work.phase_sync},
          {"loader_workers", work.loader_workers},
          {"loader_bandwidth", work.loader_bandwidth.value},
          {"options", options}};
}

Json misfits_json(const Prediction& p) {
  Json list = Json::array();
  for (const PoolReport& pool : p.pools) {
    if (pool.fits()) {
      continue;
    }
    Json largest = Json::array();
    for (const study::Tagged& tag : pool.by_tag) {
      largest.push_back({{"tag", tag.tag}, {"bytes", tag.bytes.value}});
    }
    list.push_back({{"pool", pool.name},
                    {"phase", pool.phase},
                    {"needed_bytes", pool.needed().value},
                    {"capacity_bytes", pool.capacity->value},
                    {"largest", largest}});
  }
  return list;
}

Json causes_json(const std::array<Seconds, runtime::kCauses>& times) {
  Json causes = Json::object();
  for (std::size_t i = 0; i < times.size(); ++i) {
    causes[std::string(cause_key(runtime::Cause(i)))] = times[i].value;
  }
  return causes;
}

Json phases_json(const Prediction& p) {
  Json phases{{"forward", 0.0}, {"backward", 0.0}, {"optimizer", 0.0}};
  for (const auto& [phase, time] : p.phases) {
    phases[phase] = time.value;
  }
  return phases;
}

Json memory_json(const Prediction& p) {
  Json pools = Json::object();
  for (const PoolReport& pool : p.pools) {
    Json tags = Json::object();
    for (const study::Tagged& tag : pool.by_tag) {
      tags[tag.tag] = tag.bytes.value;
    }
    pools[pool.name] = {{"peak_bytes", pool.peak.value},
                        {"reserved_bytes", pool.peak.value},
                        {"fixed_bytes", pool.fixed.value},
                        {"capacity_bytes", pool.capacity ? Json(pool.capacity->value) : Json()},
                        {"resident_bytes", pool.resident.value},
                        {"may_swap", pool.may_swap()},
                        {"phase", pool.phase},
                        {"by_tag", tags}};
  }
  return pools;
}

void add_ledger(Json& json, const study::MemoryLedger& ledger) {
  Json pools = Json::object();
  for (const study::LedgerPool& pool : ledger.pools) {
    Json phases = Json::array();
    for (std::size_t phase = 0; phase < study::kLedgerPhases.size(); ++phase) {
      Json tags = Json::object();
      for (const study::LedgerTag& tag : pool.tags) {
        if (tag.held[phase].value > 0) {
          tags[tag.tag] = tag.held[phase].value;
        }
      }
      phases.push_back({{"phase", study::kLedgerPhases[phase]},
                        {"peak_bytes", pool.peak[phase].value},
                        {"by_tag", tags}});
    }
    pools[pool.name] = std::move(phases);
  }
  json["memory_phases"] = std::move(pools);
  json["load_bytes"] = {ledger.load_least.value, ledger.load_most.value};
  json["save_bytes"] = ledger.save.value;
  if (ledger.deepspeed) {
    json["deepspeed_estimate_bytes"] = {{"gpu", ledger.deepspeed->gpu.value},
                                        {"host", ledger.deepspeed->host.value}};
  }
}

Json sources_json(const Prediction& p) {
  Json sources = Json::object();
  for (std::size_t i = 0; i < p.sources.size(); ++i) {
    sources[std::string(source_name(machine::Source(i)))] = p.sources[i];
  }
  return sources;
}

Json supports_json(const plans::Job& job, const Prediction& p) {
  Json list = Json::array();
  for (const study::Support& support : p.supports) {
    const machine::Figure& figure = job.machine.figure(support.figure);
    list.push_back({{"figure", figure.name},
                    {"share", support.share},
                    {"value", figure.value},
                    {"source", source_name(figure.source)},
                    {"spread", figure.spread},
                    {"from", figure.from},
                    {"place", figure.place.text()}});
  }
  return list;
}

// The critical path by label alone, longest first but for labels that several causes have.
Json labels_json(const Prediction& p) {
  Json labels = Json::object();
  for (const study::Spent& spent : p.spent) {
    labels[spent.label] = labels.value(spent.label, 0.0) + spent.time.value;
  }
  return labels;
}

Json utilization_json(const Prediction& p) {
  Json resources = Json::object();
  for (const auto& [resource, fraction] : p.utilization) {
    resources[resource] = fraction;
  }
  return resources;
}

Json describe(const plans::Job& job, const Prediction& p) {
  const runtime::StepTotals& totals = p.totals;
  Json causes = causes_json(p.critical_path);
  causes["idle"] = p.idle.value;
  Json cost;
  if (p.cost) {
    cost = {{"usd_per_hour", p.cost->usd_per_hour.value},
            {"usd_per_step", p.cost->usd_per_step.value},
            {"usd_per_million_tokens", p.cost->usd_per_million_tokens.value}};
  }
  return {
      {"schema", "offsim.prediction/1"},
      {"scenario", scenario_json(job)},
      {"feasible", p.feasible()},
      {"infeasible", misfits_json(p)},
      {"nvme_written_bytes_a_day", p.nvme_written_a_day.value},
      {"step_s", p.step.value},
      {"step_s_range", {p.step_low.value, p.step_high.value}},
      {"tokens_per_step", job.workload.tokens_per_step()},
      {"tokens_per_s", p.tokens_per_s},
      {"tflops",
       {{"model", p.tflops_model}, {"hardware", p.tflops_hardware}, {"six_nd", p.tflops_six_nd}}},
      {"phases_s", phases_json(p)},
      {"critical_path_s", causes},
      {"by_label_s", labels_json(p)},
      {"busy_s", causes_json(p.busy)},
      {"utilization", utilization_json(p)},
      {"bytes",
       {{"h2d", whole(totals.h2d_bytes)},
        {"d2h", whole(totals.d2h_bytes)},
        {"nvme_read", whole(totals.nvme_read_bytes)},
        {"nvme_write", whole(totals.nvme_write_bytes)},
        {"dram", whole(totals.dram_bytes)},
        {"peer", whole(totals.peer_bytes)}}},
      {"memory", memory_json(p)},
      {"cost", cost},
      {"sources", sources_json(p)},
      {"supports", supports_json(job, p)},
      {"warnings", p.warnings},
      {"activities", p.activities},
      {"simulate_s", p.simulate.value}};
}

std::string text(const Json& json) {
  // A file's name may be any bytes.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string prediction_json(const plans::Job& job, const study::Prediction& prediction,
                            const study::MemoryLedger* ledger) {
  Json json = describe(job, prediction);
  if (ledger != nullptr) {
    add_ledger(json, *ledger);
  }
  return text(json);
}

std::string comparison_json(const std::vector<ComparisonRow>& rows) {
  Json predictions = Json::array();
  for (const ComparisonRow& row : rows) {
    SIM_ASSERT(row.job != nullptr, "a row of JSON says what it is a prediction of");
    if (!row.refused.empty()) {
      predictions.push_back({{"schema", "offsim.prediction/1"},
                             {"scenario", scenario_json(*row.job)},
                             {"feasible", false},
                             {"infeasible", Json::array()},
                             {"refused", row.refused}});
      continue;
    }
    Json prediction = describe(*row.job, row.prediction);
    if (row.published_tflops) {
      prediction["published"] = {{"tflops", *row.published_tflops}, {"from", row.published_from}};
    }
    predictions.push_back(std::move(prediction));
  }
  return text({{"schema", "offsim.comparison/1"}, {"predictions", predictions}});
}

}  // namespace offsim::report
