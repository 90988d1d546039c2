#include "sim/engine/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <compare>

#include "sim/base/error.h"

namespace offsim::engine {

namespace {

// What one pool holds, in all and by tag.
struct Holding {
  std::int64_t bytes = 0;
  std::vector<std::int64_t> by_tag;
};

Picoseconds time_of(const MemoryChange& change, const Timeline& timeline) {
  return (change.at == At::kStart ? timeline.start : timeline.finish)[index(change.activity)];
}

// A change, by its index, and when it takes effect.
struct Effect {
  Picoseconds time;
  std::uint32_t change;

  friend auto operator<=>(const Effect&, const Effect&) = default;
};

// In the order of time, at one instant in issue order.
std::vector<Effect> order_of_effect(const ActivityGraph& graph, const Timeline& timeline) {
  const auto changes = graph.changes();
  std::vector<Effect> order(changes.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = {time_of(changes[i], timeline), static_cast<std::uint32_t>(i)};
  }
  std::ranges::sort(order);
  return order;
}

std::vector<TagBytes> largest_first(const Holding& holding) {
  std::vector<TagBytes> composition;
  for (std::size_t tag = 0; tag < holding.by_tag.size(); ++tag) {
    if (holding.by_tag[tag] != 0) {
      composition.push_back({TagId(tag), holding.by_tag[tag]});
    }
  }
  std::ranges::stable_sort(composition, std::ranges::greater{}, &TagBytes::bytes);
  return composition;
}

std::int64_t sum(std::int64_t held, std::int64_t delta, const char* what, std::string_view name) {
  std::int64_t result = 0;
  const bool overflows = __builtin_add_overflow(held, delta, &result);
  if (overflows || result < 0) {
    throw InternalError(
        fmt::format("{} '{}' holds {} bytes and a change adds {}", what, name, held, delta));
  }
  return result;
}

void apply(const ActivityGraph& graph, const MemoryChange& change, Holding& holding) {
  holding.bytes =
      sum(holding.bytes, change.delta_bytes, "pool", graph.pools()[index(change.pool)].name);
  std::int64_t& of_tag = holding.by_tag[index(change.tag)];
  of_tag = sum(of_tag, change.delta_bytes, "tag", graph.tag(change.tag));
}

}  // namespace

MemoryLedger account_memory(const ActivityGraph& graph, const Timeline& timeline, Window window) {
  const std::size_t pools = graph.pools().size();
  MemoryLedger ledger{std::vector<PoolPeak>(pools, PoolPeak{0, window.from, 0, {}}), {}, {}};
  std::vector<Holding> holdings(pools, Holding{0, std::vector<std::int64_t>(graph.tag_count())});
  std::vector<Holding> at_peak = holdings;
  for (const auto& [time, i] : order_of_effect(graph, timeline)) {
    const MemoryChange& change = graph.changes()[i];
    const std::uint8_t phase = graph.phases()[index(change.activity)];
    const std::size_t pool = index(change.pool);
    Holding& holding = holdings[pool];
    const std::int64_t room = graph.pools()[pool].capacity_bytes - holding.bytes;
    if (!ledger.violation && change.delta_bytes > 0 && change.delta_bytes > room) {
      const std::int64_t needed =
          sum(holding.bytes, change.delta_bytes, "pool", graph.pools()[pool].name);
      ledger.violation = Violation{i, time, phase, needed, largest_first(holding)};
    }
    apply(graph, change, holding);
    PoolPeak& peak = ledger.peaks[pool];
    const bool opening = time < window.from;  // so far the last level before the window
    if (opening || (time <= window.to && holding.bytes > peak.bytes)) {
      peak = {holding.bytes, std::max(time, window.from), phase, {}};
      at_peak[pool] = holding;
    }
  }
  for (std::size_t pool = 0; pool < pools; ++pool) {
    ledger.peaks[pool].composition = largest_first(at_peak[pool]);
    ledger.at_end.push_back(holdings[pool].bytes);
  }
  return ledger;
}

std::vector<std::vector<PoolPeak>> peaks_by_section(const ActivityGraph& graph,
                                                    const Timeline& timeline,
                                                    const std::vector<ActivityId>& begins) {
  const std::size_t pools = graph.pools().size();
  std::vector<std::vector<PoolPeak>> peaks(begins.size(), std::vector<PoolPeak>(pools));
  std::vector<Holding> holdings(pools, Holding{0, std::vector<std::int64_t>(graph.tag_count())});
  std::vector<Holding> at_peak = holdings;
  std::size_t section = 0;
  const auto close = [&](std::size_t next) {  // sections without a change hold what the last held
    for (; section < next; ++section) {
      for (std::size_t pool = 0; pool < pools; ++pool) {
        peaks[section][pool].composition = largest_first(at_peak[pool]);
        at_peak[pool] = holdings[pool];
        if (section + 1 < peaks.size()) {
          peaks[section + 1][pool].bytes = holdings[pool].bytes;
        }
      }
    }
  };
  for (const auto& [time, i] : order_of_effect(graph, timeline)) {
    const MemoryChange& change = graph.changes()[i];
    const auto after = std::ranges::upper_bound(begins, change.activity);
    const auto of_change = static_cast<std::size_t>(after - begins.begin()) - 1;
    if (of_change > section) {
      close(of_change);
    }
    const std::size_t pool = index(change.pool);
    apply(graph, change, holdings[pool]);
    PoolPeak& peak = peaks[section][pool];
    if (holdings[pool].bytes > peak.bytes) {
      peak = {holdings[pool].bytes, time, graph.phases()[index(change.activity)], {}};
      at_peak[pool] = holdings[pool];
    }
  }
  close(peaks.size());
  return peaks;
}

std::int64_t peak_if_shared(const ActivityGraph& graph, const Timeline& timeline, PoolId pool,
                            const std::vector<TagId>& shared, std::int64_t ways) {
  SIM_ASSERT(ways > 0, "what is shared is shared among some");
  std::int64_t parts = 0, whole = 0, peak = 0;
  for (const auto& [time, i] : order_of_effect(graph, timeline)) {
    const MemoryChange& change = graph.changes()[i];
    if (change.pool == pool) {
      const bool is_shared = std::ranges::find(shared, change.tag) != shared.end();
      (is_shared ? parts : whole) += change.delta_bytes;
      peak = std::max(peak, whole + parts / ways + (parts % ways > 0 ? 1 : 0));
    }
  }
  return peak;
}

std::vector<PoolSample> pool_series(const ActivityGraph& graph, const Timeline& timeline,
                                    PoolId pool) {
  std::vector<PoolSample> series;
  std::int64_t bytes = 0;
  for (const auto& [time, i] : order_of_effect(graph, timeline)) {
    const MemoryChange& change = graph.changes()[i];
    if (change.pool != pool) {
      continue;
    }
    bytes += change.delta_bytes;
    if (series.empty() || series.back().time != time) {
      series.push_back({time, 0});
    }
    series.back().bytes = bytes;
  }
  return series;
}

}  // namespace offsim::engine
