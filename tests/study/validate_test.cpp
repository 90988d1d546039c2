// Is every measured step predicted within the bounds that the project promises?
#include "sim/study/validate.h"

#include <gtest/gtest.h>

#include <cmath>

namespace offsim::study {
namespace {

const Ledger& h200() {
  static const Ledger kLedger = validate(Catalog::folder(OFFSIM_SOURCE_DIR), "h200-steps");
  return kLedger;
}

TEST(Ledger, StepTimesAreWithinFivePercentOnAverageAndTwelveAtWorst) {
  const LedgerError e = ledger_error(h200(), LedgerWhat::kStep);
  EXPECT_GE(e.count, 8U);
  EXPECT_LT(e.mean, 0.05);
  EXPECT_LT(e.worst, 0.12) << e.worst_id;
}

TEST(Ledger, EachPartIsWithinFifteenPercent) {
  const LedgerError e = ledger_error(h200(), LedgerWhat::kParts);
  EXPECT_GE(e.count, 20U);
  EXPECT_LT(e.worst, 0.15) << e.worst_id;
}

TEST(Ledger, MemoryIsWithinThreePercentOnTheGpuAndFiveOnTheHost) {
  EXPECT_LT(ledger_error(h200(), LedgerWhat::kGpu).worst, 0.03);
  EXPECT_LT(ledger_error(h200(), LedgerWhat::kHost).worst, 0.05);
}

TEST(Ledger, KeepsRowsOfSystemsThatAreNotModelled) {
  std::size_t missing = 0;
  for (const LedgerRow& row : h200().rows) {
    missing += row.missing.empty() ? 0 : 1;
  }
  EXPECT_EQ(h200().rows.size(), 13U);
  EXPECT_NE(ledger_text(h200()).find("no such plan yet"), std::string::npos);
  EXPECT_EQ(missing + ledger_error(h200(), LedgerWhat::kStep).count, 13U);
}

TEST(Ledger, LeavesRowsThatAFigureWasTakenFromOutOfTheMeans) {
  const Ledger native = validate(Catalog::folder(OFFSIM_SOURCE_DIR), "h200-native");
  std::size_t judged = 0;
  for (const LedgerRow& row : native.rows) {
    judged += row.calibrates.empty() ? 1 : 0;
  }
  EXPECT_LT(judged, native.rows.size());
  EXPECT_EQ(ledger_error(native, LedgerWhat::kStep).count, judged);
}

}  // namespace
}  // namespace offsim::study
