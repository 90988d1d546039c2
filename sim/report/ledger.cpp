#include "sim/report/ledger.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/base/language.h"
#include "sim/base/table.h"
#include "sim/report/layout.h"

namespace offsim::report {

namespace {

using study::LedgerPool;
using study::MemoryLedger;
using Align = Table::Align;

constexpr std::size_t kLedgerNumbers = 46;  // columns of a row beside the tag

std::string cell(Bytes bytes) { return bytes.value == 0 ? "" : gib_number(bytes); }

std::string a_parameter(Bytes bytes, const MemoryLedger& ledger) {
  return fmt::format("{:.2f}",
                     static_cast<double>(bytes.value) / static_cast<double>(ledger.parameters));
}

std::string pool_text(const LedgerPool& pool, const study::PoolReport& report,
                      const MemoryLedger& ledger, const TextStyle& style) {
  std::vector<Table::Column> columns{{listed({tr(pool_title(pool.name)), "GiB"})}};
  for (const char* const phase : {"placed", "1st f/b", "1st opt", "later"}) {
    columns.push_back({tr(phase), Align::kRight});
  }
  columns.push_back({tr("B/param"), Align::kRight});
  Table table(columns);
  const std::size_t worst = pool.worst();
  for (const study::LedgerTag& tag : pool.tags) {
    std::vector<std::string> name =
        wrap(tr(tag.tag), std::min<std::size_t>(40, page_width(style) - kLedgerNumbers));
    for (std::size_t i = 0; i + 1 < name.size(); ++i) {
      table.add_row({"  " + name[i]});
    }
    std::vector<std::string> row{"  " + name.back()};
    for (const Bytes held : tag.held) {
      row.push_back(cell(held));
    }
    row.push_back(tag.held[worst].value == 0 ? "" : a_parameter(tag.held[worst], ledger));
    table.add_row(std::move(row));
  }
  std::vector<std::string> all{tr("in all")}, needed{tr("and fixed")};
  for (const Bytes peak : pool.peak) {
    all.push_back(gib_number(peak));
    needed.push_back(gib_number(peak + report.fixed));
  }
  all.push_back(a_parameter(pool.peak[worst], ledger));
  table.add_row(std::move(all));
  if (report.fixed.value > 0) {
    table.add_row(std::move(needed));
  }
  std::string out = "\n" + table.text({.colour = style.colour});
  if (report.capacity) {
    out += tr_format("of {}: {}", gib_text(*report.capacity),
                     !report.fits()      ? tr("does not fit")
                     : report.may_swap() ? tr("fits, and the machine may swap")
                                         : tr("fits")) +
           "\n";
  }
  return out;
}

// Loading and saving are the script's.
std::string around_text(const study::PoolReport& host, const MemoryLedger& ledger,
                        const TextStyle& style) {
  const auto too_much = [&](Bytes bytes) {
    return host.capacity && bytes + host.fixed > *host.capacity;
  };
  const Bytes saved = host.resident + ledger.save;
  return "\n" +
         labelled("load",
                  tr_format("{} to {} on the host{}: the whole model in each rank's memory, 2 to "
                            "4 B a parameter, unless it is made in shards (assumed)",
                            tie(gib_text(ledger.load_least)), tie(gib_text(ledger.load_most)),
                            too_much(ledger.load_least)  ? tr(": does not fit")
                            : too_much(ledger.load_most) ? tr(": the most does not fit")
                                                         : ""),
                  style) +
         labelled("save",
                  tr_format("{} on the host{}: {} more than is held, for {} (assumed)",
                            tie(gib_text(saved)), too_much(saved) ? tr(": does not fit") : "",
                            tie(gib_text(ledger.save)),
                            ledger.gathers ? tr("all 16-bit parameters where they are gathered")
                                           : tr("a tensor at a time")),
                  style);
}

std::string estimate_text(const MemoryLedger& ledger, const study::Prediction& p,
                          const TextStyle& style) {
  const study::DeepspeedEstimate& e = *ledger.deepspeed;
  Table table({{tr("DeepSpeed's, GiB")},
               {tr("says"), Align::kRight},
               {"offsim", Align::kRight},
               {tr("it counts")}});
  const auto add = [&](const char* name, Bytes says, const std::string& terms) {
    const study::PoolReport* const pool = p.pool(name);
    table.add_row({tr(pool_title(name)), gib_number(says),
                   pool != nullptr ? gib_number(pool->needed()) : "", tr(terms)});
  };
  add("gpu", e.gpu, e.gpu_terms);
  add("host", e.host, e.host_terms);
  return "\n" + join(rows_of(table, style), "\n") + "\n" +
         paragraph(
             "  ",
             tr("Its estimator knows parameters, gradients and Adam's states alone. The rest is "
                "what it leaves out: activations, buckets, gathered parameters, temporaries, "
                "pinned rounding, context and process."),
             style);
}

}  // namespace

std::string ledger_text(const plans::Job& job, const study::Prediction& prediction,
                        const MemoryLedger& ledger, const TextStyle& style) {
  std::string out =
      "\n" + paragraph("",
                       tr_format("Memory of {}, at the peak of each phase: what is placed before "
                                 "the first step, its forward and backward, its optimizer step, "
                                 "and all later steps; bytes a parameter where it is most.",
                                 job.plan->name),
                       style);
  for (const LedgerPool& pool : ledger.pools) {
    out += pool_text(pool, *prediction.pool(pool.name), ledger, style);
  }
  if (const study::PoolReport* const host = prediction.pool("host")) {
    out += around_text(*host, ledger, style);
  }
  return ledger.deepspeed ? out + estimate_text(ledger, prediction, style) : out;
}

}  // namespace offsim::report
