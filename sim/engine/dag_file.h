// Reads a DAG in plain text, the format of tests/dag_bench/gen_dag.py. One record a line; '#'
// starts a comment:
//
//   @resource NAME exec|link RATE       units a second
//   ID KIND RESOURCE AMOUNT [DEP ...]   KIND is exec (on one exec resource)
//                                       or xfer (over one or more links: a+b)
//
// Every unit of amount uses 1 of each of its resources; rates are limited by nothing else. IDs are
// integers from 0 on, in any order, each once; a DEP is the ID of an earlier line; AMOUNT is a
// whole number from 1 to 2^53, so that every reader holds the same number. Activities get their
// ActivityId in the order of the lines.
//
// The file is read line by line and never held as a whole. Whatever is wrong is an InputError with
// line and column.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/engine/graph.h"

namespace offsim::engine {

inline constexpr std::size_t kLongestDagLine = 1 << 20;

struct Dag {
  GraphBuilder builder;
  std::vector<std::int64_t> ids;  // by ActivityId: its ID in the file
  std::size_t edges = 0;
};

Dag read_dag(const std::string& path);

}  // namespace offsim::engine
