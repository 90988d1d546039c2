#include "sim/import/partners.h"

#include <fmt/format.h>

#include <algorithm>

namespace offsim::imports {

namespace {

// What is there under the key of a map, or nullptr.
const Node* inside(const Node* map, std::string_view key) {
  return map != nullptr && map->kind == Node::Kind::kMap ? map->find(key) : nullptr;
}

// As Python has it of a switch that is absent or null by default; "auto" is nobody's to fill.
bool is_on(const Node* node) {
  return node != nullptr && node->kind == Node::Kind::kScalar &&
         (node->quoted || (node->scalar != "false" && node->scalar != "0")) &&
         node->scalar != "auto";
}

bool is_a_degree(const Node* node) {
  return node != nullptr && node->kind == Node::Kind::kScalar && node->scalar != "0" &&
         node->scalar != "1";
}

// runtime/tensor_parallel/config.py: autotp_size is 0 (off) by default, and tp_size, of "tp" or
// "tensor_parallel" in it, 1; a degree of 1 shares nothing out. Other keys do not turn it on.
bool is_tensor_parallel(const Node* block) {
  const Node* const tp = inside(block, "tp");
  return is_a_degree(inside(block, "autotp_size")) || is_a_degree(inside(block, "tp_size")) ||
         is_a_degree(inside(tp, "tp_size"));
}

void refuse_parallelism(const Block& top, Findings& findings) {
  for (const char* const key : {"pipeline", "tensor_parallel", "expert_parallel"}) {
    const Node* const node = top.map(key);
    if (node != nullptr && (key != std::string_view("tensor_parallel") ||
                            node->kind != Node::Kind::kMap || is_tensor_parallel(node))) {
      findings.refuse(top.key_place(key), fmt::format("{} is not modelled", key),
                      "expected data parallelism alone (with pipelines, DeepSpeed refuses "
                      "stage 2 and 3)");
    }
  }
}

// "enabled" is false by default in amp and torch_autocast (runtime/constants.py); data_types has no
// such switch.
void warn_of_casts(const Block& top, Findings& findings) {
  for (const char* const key : {"torch_autocast", "amp", "data_types"}) {
    const Node* const node = top.map(key);
    const bool off = key != std::string_view("data_types") && !is_on(inside(node, "enabled"));
    if (node != nullptr && !off) {
      findings.warn(top.key_place(key),
                    fmt::format("{} is not modelled: the prediction is without it", key));
    }
  }
}

}  // namespace

void read_partners(const Block& top, const Block& activation, const Block& aio,
                   Findings& findings) {
  const Node* const deep = inside(top.map("compile"), "deepcompile");
  if (deep != nullptr && deep->scalar == "true") {
    findings.refuse(deep->place, "DeepCompile has a schedule of its own, which is not modelled",
                    "expected deepcompile false");
  }
  refuse_parallelism(top, findings);
  warn_of_casts(top, findings);
  if (activation.exists() && activation.text("cpu_checkpointing") == "true") {
    findings.warn(activation.place("cpu_checkpointing"),
                  "cpu_checkpointing has no effect on Hugging Face's models, whose own "
                  "gradient_checkpointing counts (--set PLAN.cpu_checkpointing=true asks for "
                  "DeepSpeed's)");
  }
  if (aio.flag("use_gds", false)) {
    findings.warn(aio.place("use_gds"),
                  "use_gds is not modelled: the drive's data goes through host memory");
  }
  if (const Node* const threads = inside(aio.node(), "thread_count")) {
    findings.warn(threads->place, "intra_op_parallelism is what thread_count is meant for");
  }
}

}  // namespace offsim::imports
