// Predicted against measured: the steps of validation/*.yaml, row by row and part by part.
//
// A row is one measured training step: model, plan with options, work, machine, and what was
// measured: the step, its parts, GPU peak and resident host memory. It is predicted with the
// machine file alone; nothing is fitted to a row. Rows whose plan offsim does not have stay in the
// ledger and say so; rows that a figure of the machine file was taken from are marked and left out
// of the means. Parts under 2 % of their step are listed, not judged. Parts: forward, backward,
// step are phases; MegaTrain's "clip", "Adam" are what the critical path did under that name,
// "refresh and zero" the rest of its optimizer phase.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/base/units.h"
#include "sim/study/catalog.h"

namespace offsim::study {

template <class Unit>
struct Compared {
  Unit measured, predicted;
};

struct LedgerPart {
  std::string name;
  Compared<Seconds> time;
  bool judged = true;  // at least 2 % of the step
};

struct LedgerRow {
  std::string id, plan, file;
  std::string missing;     // why there is no prediction; empty when there is one
  std::string calibrates;  // the figure that was taken from this row, if one was
  Compared<Seconds> step;
  std::vector<LedgerPart> parts;
  std::optional<Compared<Bytes>> gpu, host;
};

struct Ledger {
  std::vector<LedgerRow> rows;
};

// Mean and worst of |predicted / measured - 1| over the judged rows.
struct LedgerError {
  double mean = 0, worst = 0;
  std::string worst_id;
  std::size_t count = 0;
};
enum class LedgerWhat : std::uint8_t { kStep, kParts, kGpu, kHost };
LedgerError ledger_error(const Ledger& ledger, LedgerWhat what);

// Every row of validation/*.yaml, or of the one file named. Throws InputError for a malformed file.
Ledger validate(const Catalog& catalog, const std::string& only = "");
std::string ledger_text(const Ledger& ledger, bool colour = false);
std::string ledger_json(const Ledger& ledger);  // schema offsim.ledger/1

}  // namespace offsim::study
