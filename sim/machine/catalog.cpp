// Finds the files of a machine and puts them together.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "sim/base/text.h"
#include "sim/machine/machine.h"
#include "sim/machine/parts.h"

namespace offsim::machine {

namespace {

// `over` laid on `base`, map by map. A figure is replaced as a whole: a new value with the old
// source would be a lie.
Node merged(Node base, const Node& over) {
  const bool maps = base.kind == Node::Kind::kMap && over.kind == Node::Kind::kMap;
  if (!maps || base.find("source") != nullptr || over.find("source") != nullptr) {
    return over;
  }
  for (std::size_t i = 0; i < over.keys.size(); ++i) {
    const auto found = std::ranges::find(base.keys, over.keys[i]);
    if (found == base.keys.end()) {
      base.keys.push_back(over.keys[i]);
      base.key_places.push_back(over.key_places[i]);
      base.items.push_back(over.items[i]);
    } else {
      Node& item = base.items[static_cast<std::size_t>(found - base.keys.begin())];
      item = merged(std::move(item), over.items[i]);
    }
  }
  return base;
}

std::optional<Node> read_node(const Catalog& catalog, const std::string& path) {
  const std::optional<std::string> text = catalog.read(path);
  if (!text) {
    return std::nullopt;
  }
  return parse_document(*text, catalog.prefix + path, Syntax::kYaml);
}

// A part of a system: a name in the catalog's folder, or the map itself; then the overrides.
Node part(const Catalog& catalog, View& system, std::string_view key, const std::string& folder,
          std::optional<View>& overrides) {
  Node node = system.need(key);
  if (node.kind == Node::Kind::kScalar) {
    std::optional<Node> file = read_node(catalog, folder + "/" + node.scalar + ".yaml");
    if (!file) {
      throw InputError(
          node.place,
          fmt::format("{} '{}' is not in {}{}/", key, node.scalar, catalog.prefix, folder),
          suggest(node.scalar, catalog.list(folder)));
    }
    node = std::move(*file);
  }
  const Node* const over = overrides ? overrides->get(key) : nullptr;
  return over != nullptr ? merged(std::move(node), *over) : node;
}

// The file of a machine by name or by path.
Node find_machine(const Catalog& catalog, const std::string& name, const Place& asked_at) {
  if (name.find('/') != std::string::npos || name.ends_with(".yaml")) {
    std::error_code ignored;
    if (!std::filesystem::exists(name, ignored)) {
      throw InputError(asked_at, fmt::format("there is no file '{}'", name),
                       "expected the path of a machine's YAML file, or a name of the catalog");
    }
    return load_document(name);
  }
  for (const char* const folder : {"systems/", "measured/"}) {
    if (std::optional<Node> node = read_node(catalog, folder + name + ".yaml")) {
      return *std::move(node);
    }
  }
  throw InputError(
      asked_at, fmt::format("there is no machine '{}'", name),
      suggest(name, machine_names(catalog), fmt::format("a path such as ./{}.yaml", name)));
}

void build_topology(Machine& m) {
  Topology& t = m.topology;
  const int dram = t.add_node("dram");
  const int socket = t.add_node("socket0");
  t.edges.push_back({"dram", dram, socket, m.host.dram, m.host.dram, m.host.dram});
  for (int gpu = 0; gpu < m.gpus; ++gpu) {
    const int node = t.add_node(fmt::format("gpu{}", gpu));
    if (!m.link) {
      t.edges.push_back(
          {fmt::format("link{}", gpu), socket, node, m.host.dram, m.host.dram, m.host.dram});
      continue;
    }
    int above = socket;
    if (m.uplink && gpu % m.uplink->gpus == 0) {
      const int index = gpu / m.uplink->gpus;
      above = t.add_node(fmt::format("switch{}", index));
      t.edges.push_back({fmt::format("uplink{}", index), socket, above, m.uplink->h2d,
                         m.uplink->d2h, m.uplink->total});
    } else if (m.uplink) {
      above = t.node(fmt::format("switch{}", gpu / m.uplink->gpus));
    }
    t.edges.push_back(
        {fmt::format("link{}", gpu), above, node, m.link->h2d, m.link->d2h, m.link->total});
  }
  for (std::size_t i = 0; i < m.drives.size(); ++i) {
    const Drive& drive = m.drives[i];
    const int node = t.add_node(fmt::format("drive{}", i));
    t.edges.push_back({fmt::format("drive{}", i), socket, node, drive.write, drive.read,
                       drive.read.value > drive.write.value ? drive.read : drive.write});
  }
}

void read_connections(const Catalog& catalog, View& system, std::optional<View>& overrides,
                      FigureReader& figures, Machine& m) {
  if (m.accelerator.unified) {
    if (system.get("link") != nullptr) {
      throw InputError(system.place_of("link"), "a unified machine has a link",
                       "expected no link: CPU and GPU share one memory");
    }
  } else {
    const Node link = part(catalog, system, "link", "links", overrides);
    m.link = read_link(View(link, "link"), figures);
  }
  if (std::optional<View> uplink = system.find_map("uplink")) {
    m.uplink = read_uplink(*uplink, figures);
  }
  if (system.get("peer") != nullptr) {
    m.peer = figures.bandwidth(system, "peer");
  }
  if (const Node* const drives = system.get("drives")) {
    if (drives->kind != Node::Kind::kList) {
      throw InputError(drives->place, "drives is not a list", "expected a list of drives");
    }
    for (std::size_t i = 0; i < drives->items.size(); ++i) {
      m.drives.push_back(read_drive(View(drives->items[i], fmt::format("drive{}", i)), figures));
    }
  }
}

}  // namespace

const Figure& Machine::figure(FigureId id) const {
  const auto index = static_cast<std::size_t>(id);
  SIM_ASSERT(id != kNoFigure && index < figures.size(),
             "a cost names one of its machine's figures");
  return figures[index];
}

Catalog folder_catalog(const std::string& folder) {
  const std::string root = folder.ends_with('/') ? folder : folder + "/";
  Catalog catalog;
  catalog.prefix = root;
  catalog.read = [root](const std::string& path) -> std::optional<std::string> {
    if (!std::filesystem::is_regular_file(root + path)) {
      return std::nullopt;
    }
    return read_file(root + path);
  };
  catalog.list = [root](const std::string& sub) {
    std::vector<std::string> names;
    std::error_code none;  // a missing folder is an empty one
    for (const auto& entry : std::filesystem::directory_iterator(root + sub, none)) {
      if (entry.path().extension() == ".yaml") {
        names.push_back(entry.path().stem().string());
      }
    }
    std::ranges::sort(names);
    return names;
  };
  return catalog;
}

std::vector<std::string> machine_names(const Catalog& catalog) {
  std::vector<std::string> names = catalog.list("systems");
  std::ranges::copy(catalog.list("measured"), std::back_inserter(names));
  std::ranges::sort(names);
  return names;
}

Machine load_machine(const Catalog& catalog, const std::string& name, const Place& asked_at,
                     const std::string& framework_name) {
  const Node document = find_machine(catalog, name, asked_at);
  View system(document, "");
  std::optional<View> overrides = system.find_map("override");
  const FindLike find_like = [&](const std::string& other, const Place& at) {
    const Node node = find_machine(catalog, other, at);
    Node accelerator = View(node, "").need("accelerator");
    if (accelerator.kind == Node::Kind::kScalar) {
      throw InputError(at, fmt::format("machine '{}' has no accelerator of its own", other),
                       "expected one that was measured");
    }
    return accelerator;
  };

  Machine m;
  FigureReader figures(m.figures);
  m.name = printable(std::filesystem::path(name).stem().string());
  m.title = system.text("title");
  m.gpus = static_cast<int>(system.integer("gpus", 1, 64));
  const Node accelerator = part(catalog, system, "accelerator", "accelerators", overrides);
  m.accelerator = read_accelerator(View(accelerator, "accelerator"), figures, find_like);
  const Node host = part(catalog, system, "host", "hosts", overrides);
  m.host = read_host(View(host, "host"), figures);
  Node framework = part(catalog, system, "framework", "frameworks", overrides);
  if (!framework_name.empty()) {
    std::optional<Node> other = read_node(catalog, "frameworks/" + framework_name + ".yaml");
    SIM_ASSERT(other.has_value(), "the catalog has the framework that a command needs");
    framework = *std::move(other);
  }
  m.framework = read_framework(View(framework, "framework"), figures);
  read_connections(catalog, system, overrides, figures, m);
  if (std::optional<View> price = system.find_map("price")) {
    m.price = read_price(*price, figures);
  }
  if (overrides) {
    overrides->finish();
  }
  system.finish();
  build_topology(m);
  return m;
}

}  // namespace offsim::machine
