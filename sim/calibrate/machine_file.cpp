#include "sim/calibrate/machine_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/base/config.h"
#include "sim/base/text.h"
#include "sim/calibrate/figures.h"

namespace offsim::calibrate {

namespace {

constexpr double kSameMemory = 0.03;  // of one product, as drivers and catalogs state it

// A node as flow YAML: what is taken over from the base, source and all.
std::string flow(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kNull:
      return "null";
    case Node::Kind::kScalar:
      return node.quoted || node.scalar.find_first_of(":,{}[]#&*!|>'\"%@`\n") != std::string::npos
                 ? double_quoted(node.scalar)
                 : node.scalar;
    case Node::Kind::kList: {
      std::string items;
      for (const Node& item : node.items) {
        items += (items.empty() ? "" : ", ") + flow(item);
      }
      return "[" + items + "]";
    }
    case Node::Kind::kMap: {
      std::string items;
      for (std::size_t i = 0; i < node.items.size(); ++i) {
        items +=
            fmt::format("{}{}: {}", items.empty() ? "" : ", ", node.keys[i], flow(node.items[i]));
      }
      return "{" + items + "}";
    }
  }
  return "";
}

std::optional<Node> find_node(const machine::Catalog& catalog, const std::string& path) {
  const std::optional<std::string> text = catalog.read(path);
  return text ? std::optional(parse_document(*text, catalog.prefix + path, Syntax::kYaml))
              : std::nullopt;
}

// The file of a part that a system names.
std::optional<Node> part_of(const machine::Catalog& catalog, const Node& system,
                            std::string_view key, const std::string& folder) {
  const Node* const name = system.find(key);
  if (name == nullptr || name->kind != Node::Kind::kScalar) {
    return std::nullopt;
  }
  return find_node(catalog, folder + "/" + name->scalar + ".yaml");
}

Node base_system(const machine::Catalog& catalog, const std::string& base) {
  std::optional<Node> system = find_node(catalog, "systems/" + base + ".yaml");
  if (!system) {
    throw InputError({"command line"}, fmt::format("there is no system '{}'", base),
                     suggest(base, catalog.list("systems")));
  }
  return *std::move(system);
}

bool is_gpu(const Environment& e, const Node& accelerator) {
  View map(accelerator, "");
  return map.integer("multiprocessors", 1, 10'000) == e.multiprocessors;
}

// What stands in the place of a figure that a host without a GPU cannot measure.
void take_over(Section& host, const Node& base_host, const std::string& base,
               std::vector<std::string>& kept) {
  for (const std::string key : {"dram", "core_bandwidth", "core_speed", "dma_weight", "fresh_pages",
                                "page_release", "pinned_alloc"}) {
    if (const Node* const figure = base_host.find(key); figure != nullptr && !host.has(key)) {
      host.add(key, flow(*figure));
      kept.push_back(fmt::format("host.{}: of {}", key, base));
    }
  }
}

// The peaks of a GPU that the catalog does not have: its fastest products and copies.
Section own_accelerator(Figures& figures) {
  const Records& records = figures.records;
  Section out;
  out.add("name", double_quoted(records.environment.gpu));
  out.add("vendor", "NVIDIA");
  out.add("multiprocessors", fmt::format("{}", records.environment.multiprocessors));
  double bandwidth = 0;
  for (const Point& p : records.of("elementwise")) {
    bandwidth = std::max(bandwidth, p.number("bytes") / p.value);
  }
  out.add("memory_bandwidth", figures.value("accelerator.memory_bandwidth", rate_text(bandwidth),
                                            {"elementwise", "the fastest", 0.05, {}}));
  Section peak;
  for (const std::string type : {"bf16", "fp16", "tf32", "fp32"}) {
    double best = 0;
    for (const Point& p : records.of("gemm", {{"type", type}})) {
      best = std::max(best, 2 * p.number("m") * p.number("n") * p.number("k") / p.value);
    }
    if (best > 0) {
      peak.add(type, figures.value(
                         "accelerator.peak." + type, fmt::format("{:.4g} TFLOPS", best / 1e12),
                         {"gemm", "the fastest product: the datasheet is not known", 0.10, {}}));
    }
  }
  out.add("peak", peak);
  return out;
}

// The file, part by part: what was measured, and the base's where nothing was.
class Assembly {
 public:
  Assembly(const Records& records, const machine::Catalog& catalog, const std::string& base,
           const std::string& raw)
      : e_(records.environment),
        catalog_(catalog),
        base_(base),
        system_(base_system(catalog, base)),
        whole_(machine::load_machine(catalog, base)),
        figures_(records, raw) {}

  void head() {
    file_.add("title",
              double_quoted(
                  e_.gpu.empty()
                      ? fmt::format("{}, {} cores, measured; GPU of {}", e_.cpu, e_.cores, base_)
                      : fmt::format("{}, {} cores of {}, measured", e_.gpu, e_.cores, e_.cpu)));
    file_.add("gpus", fmt::format("{}", std::max<std::int64_t>(e_.gpus, 1)));
    file_.add("framework", flow(*system_.find("framework")));
    if (const Section framework = framework_figures(figures_, whole_.framework);
        !framework.empty()) {
      override_.add("framework", framework);
    }
  }

  void accelerator() {
    const Section measured = accelerator_figures(figures_);
    const auto of_base = part_of(catalog_, system_, "accelerator", "accelerators");
    if (measured.empty()) {
      keep("accelerator");
    } else if (of_base && is_gpu(e_, *of_base)) {
      file_.add("accelerator", flow(*system_.find("accelerator")));
      override_.add("accelerator", measured);
    } else {
      Section own = own_accelerator(figures_);
      own.append(measured);
      file_.add("accelerator", own);
    }
  }

  void host() {
    Section measured = host_figures(figures_, whole_.framework);
    if (measured.empty()) {
      keep("host");
      return;
    }
    if (const auto of_base = part_of(catalog_, system_, "host", "hosts")) {
      take_over(measured, *of_base, base_, kept_);
    }
    file_.add("host", measured);
  }

  void connections() {
    const Section measured = link_figures(figures_);
    if (measured.empty()) {
      keep("link");
    } else if (const Node* const link = system_.find("link")) {
      file_.add("link", flow(*link));
      override_.add("link", measured);
    } else {
      left_out_.push_back(fmt::format(
          "the link was measured and is left out: {} has none; --base names another system",
          base_));
    }
    if (e_.gpus > 1) {
      several_gpus();
    }
  }

  void drives() {
    const Section drive = drive_figures(figures_);
    if (drive.empty()) {
      keep("drives");
      return;
    }
    std::string item = drive.text(4);
    item[2] = '-';
    item.pop_back();
    file_.add("drives", "\n" + item);
  }

  MachineFile finish(const std::string& raw) {
    keep("price");
    if (!override_.empty()) {
      file_.add("override", override_);
    }
    return {fmt::format("# Made by offsim calibrate from {} of {}. Do not edit: measure again.\n",
                        raw, e_.day()) +
                file_.text(0),
            base_, fitted(), std::move(kept_), std::move(left_out_)};
  }

 private:
  void several_gpus() {
    if (const Section uplink = uplink_figures(figures_); !uplink.empty()) {
      file_.add("uplink", uplink);
    } else {
      keep("uplink");
    }
    if (const std::optional<std::string> peer = peer_figure(figures_)) {
      file_.add("peer", *peer);
    } else {
      keep("peer");
    }
  }

  // Without the figures of a link that is left out.
  std::vector<Fitted> fitted() const {
    std::vector<Fitted> fitted = figures_.fitted();
    if (!left_out_.empty()) {
      std::erase_if(fitted, [](const Fitted& f) { return f.name.starts_with("link."); });
    }
    return fitted;
  }

  // As the base has it, if it has one.
  void keep(const char* key) {
    if (const Node* const node = system_.find(key)) {
      file_.add(key, flow(*node));
      kept_.push_back(fmt::format("{}: of {}", key, base_));
    }
  }

  const Environment& e_;
  const machine::Catalog& catalog_;
  std::string base_;
  Node system_;
  machine::Machine whole_;
  Figures figures_;
  Section file_, override_;
  std::vector<std::string> kept_, left_out_;
};

}  // namespace

void require_system(const machine::Catalog& catalog, const std::string& base) {
  base_system(catalog, base);
}

std::string system_of_gpu(const Records& records, const machine::Catalog& catalog) {
  const Environment& e = records.environment;
  std::string found;
  double nearest = kSameMemory;
  for (const std::string& name :
       e.gpu.empty() ? std::vector<std::string>{} : catalog.list("systems")) {
    const Node system = base_system(catalog, name);
    const std::optional<Node> accelerator = part_of(catalog, system, "accelerator", "accelerators");
    if (!accelerator || !is_gpu(e, *accelerator)) {
      continue;
    }
    View map(*accelerator, "");
    const double memory = static_cast<double>(map.map("memory").bytes("value").value);
    const double away = std::abs(memory / static_cast<double>(e.gpu_memory) - 1);
    if (away < nearest) {
      nearest = away;
      found = name;
    }
  }
  return found;
}

namespace {

// What measurements of a part of an unknown GPU leave out shows when the file is read.
void require_loads(const MachineFile& file, const machine::Catalog& catalog) {
  machine::Catalog with_file = catalog;
  with_file.read = [&](const std::string& path) {
    return path == "measured/calibrated.yaml" ? file.text : catalog.read(path);
  };
  try {
    machine::load_machine(with_file, "calibrated");
  } catch (const InputError& error) {
    throw InputError({"the records"}, fmt::format("they do not make a machine: {}", error.what()),
                     "expected more benches, or --base with a system of this GPU");
  }
}

}  // namespace

MachineFile machine_file(const Records& records, const machine::Catalog& catalog,
                         const std::string& base, const std::string& raw) {
  Assembly assembly(records, catalog, base, raw);
  assembly.head();
  assembly.accelerator();
  assembly.host();
  assembly.connections();
  assembly.drives();
  MachineFile file = assembly.finish(raw);
  require_loads(file, catalog);
  return file;
}

}  // namespace offsim::calibrate
