// Visits to modules under stage 3's hooks, each written as one line.
//
// Of a parameter of 10 elements: "10" its copy to the GPU, "-10" its release; "r10" submits a read
// of it; "s" the host waits, for copies or reads; "|" compute waits for copies, and what follows
// until the releases is prefetched.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "sim/plans/gather_window.h"
#include "tests/plans/jobs.h"

namespace offsim::plans {

using Module = std::vector<GatherWindow::ParameterId>;
using Lines = std::vector<std::string>;

// Calls as lines: a hook begins one.
inline Lines lines_of(const runtime::Program& program) {
  Lines lines;
  std::map<runtime::Buffer, std::int64_t> elements;
  const auto add = [&lines](std::string_view what) {
    lines.back() += (lines.back().empty() ? "" : " ") + std::string(what);
  };
  for (const runtime::Call& call : program.calls) {
    if (std::holds_alternative<runtime::HostBusy>(call)) {
      lines.emplace_back();
    } else if (const auto* allocate = std::get_if<runtime::Allocate>(&call)) {
      elements[allocate->buffer] = allocate->bytes / 2;
    } else if (const auto* copy = std::get_if<runtime::Copy>(&call)) {
      add(std::to_string(copy->bytes / 2));
    } else if (const auto* free = std::get_if<runtime::Free>(&call)) {
      add("-" + std::to_string(elements.at(free->buffer)));
    } else if (const auto* io = std::get_if<runtime::Io>(&call)) {
      add((io->write ? "w" : "r") + std::to_string(io->bytes / 2));
    } else if (const auto* wait = std::get_if<runtime::Wait>(&call)) {
      add(wait->lane == runtime::kHost ? "s" : "|");
    }
  }
  return lines;
}

class Window {
 public:
  explicit Window(GatherWindow::Limits limits, std::vector<GatherWindow::Parameter> parameters,
                  bool own_stream = true)
      : gpu_({.gpu = 1}),
        window_(gpu_, own_stream ? gpu_.stream("gather") : runtime::kCompute,
                runtime::HostTask::kModuleHook, limits, std::move(parameters), nullptr) {}
  // Of so many elements, all on the drive.
  Window(const Job& job, GatherWindow::Limits limits, const std::vector<std::int64_t>& elements)
      : gpu_({.gpu = 1}),
        swapper_(std::in_place, job, gpu_, elements, 0),
        window_(gpu_, gpu_.stream("gather"), runtime::HostTask::kModuleHook, limits,
                on_drive(elements), &*swapper_) {}

  void visit(const Module& module, std::int32_t borders = 1, bool saved = false) {
    window_.enter(module, borders);
    window_.leave(module, saved);
  }
  void micro_step(const std::vector<Module>& modules) {
    window_.begin_micro_step();
    for (const Module& module : modules) {
      visit(module);
    }
  }
  GatherWindow& window() { return window_; }
  // Lines of the last `visits`; the window is used up.
  Lines last(std::size_t visits) {
    const Lines all = lines_of(std::move(gpu_).finish());
    return {all.end() - static_cast<std::ptrdiff_t>(visits), all.end()};
  }

 private:
  static std::vector<GatherWindow::Parameter> on_drive(const std::vector<std::int64_t>& elements) {
    std::vector<GatherWindow::Parameter> parameters;
    for (const std::int64_t n : elements) {
      parameters.push_back({n, false, runtime::Space::kNvme});
    }
    return parameters;
  }

  runtime::Recorder gpu_;
  std::optional<ParameterSwapper> swapper_;
  GatherWindow window_;
};

}  // namespace offsim::plans
