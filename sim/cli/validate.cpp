#include "sim/cli/validate.h"

#include <ostream>

#include "sim/cli/question.h"
#include "sim/study/validate.h"

namespace offsim::cli {

int run_validate(const ValidateOptions& options, std::ostream& out, std::ostream&) {
  const study::Catalog catalog = open_catalog(options.catalog);
  const study::Ledger ledger = study::validate(catalog, options.file);
  if (!write_all(
          {{"--json", options.json, [&](std::ostream& to) { to << study::ledger_json(ledger); }}},
          out)) {
    out << study::ledger_text(ledger, options.terminal.style.colour);
  }
  return 0;
}

}  // namespace offsim::cli
