// What a job's program asks of each lane, by name: the sequence of its last step.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "tests/plans/jobs.h"

namespace offsim::plans {

using runtime::Call;
using runtime::Lane;
using Names = std::vector<std::string>;

// The calls of the last step.
inline std::vector<Call> step_of(const runtime::Program& program) {
  std::vector<Call> step, last;
  for (const Call& call : program.calls) {
    if (std::holds_alternative<runtime::EndStep>(call)) {
      last = std::exchange(step, {});
    } else {
      step.push_back(call);
    }
  }
  return last;
}

inline Lane lane_of(const runtime::Program& program, std::string_view name) {
  const auto found = std::ranges::find(program.lanes, name, &runtime::LaneInfo::name);
  EXPECT_NE(found, program.lanes.end()) << name;
  return Lane(found - program.lanes.begin());
}

// What a lane does: names of works without their size, of copies, CPU kernels, requests.
inline Names on(const runtime::Program& program, std::string_view lane_name) {
  const Lane lane = lane_of(program, lane_name);
  Names names;
  for (const Call& call : step_of(program)) {
    if (const auto* launch = std::get_if<runtime::Launch>(&call);
        launch != nullptr && launch->stream == lane) {
      const std::string& name = program.works[static_cast<std::size_t>(launch->work)].name;
      names.push_back(name.substr(0, name.find(" (")));
    } else if (const auto* copy = std::get_if<runtime::Copy>(&call);
               copy != nullptr && copy->stream == lane) {
      names.emplace_back(program.text(copy->what));
    } else if (const auto* cpu = std::get_if<runtime::CpuWork>(&call);
               cpu != nullptr && cpu->thread == lane) {
      names.emplace_back(program.text(cpu->what));
    } else if (const auto* io = std::get_if<runtime::Io>(&call);
               io != nullptr && io->queue == lane) {
      names.emplace_back(program.text(io->what));
    } else if (const auto* collective = std::get_if<runtime::Collective>(&call);
               collective != nullptr && collective->stream == lane) {
      names.emplace_back(program.text(collective->what));
    }
  }
  return names;
}

inline Names without_repeats(Names names) {
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

inline std::int64_t count_of(const Names& names, std::string_view name) {
  return std::ranges::count(names, name);
}

inline Names operator+(Names a, const Names& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline Names repeated(const Names& names, std::size_t times) {
  Names out;
  for (std::size_t i = 0; i < times; ++i) {
    out = out + names;
  }
  return out;
}

}  // namespace offsim::plans
