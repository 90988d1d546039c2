// What a person reads: one prediction, a table of several, the price of a token budget.
//
// Plain text of at most `width` columns, each line ended by a newline; escape codes only with
// `colour`. "Where the step goes" is the critical path by cause (exposed) beside the time in which
// the cause was at work at all (busy); exposed times add up to the step, but for the rounding of
// the digits shown. Bytes are in GiB (2^30). A prediction that does not fit begins with what is too
// large. Left out: the times of a step that does not fit, since nobody could measure them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/plans/job.h"
#include "sim/study/predict.h"

namespace offsim::report {

struct TextStyle {
  bool colour = false;
  int width = 80;
};

// Ends with next_text() when there is a next command.
std::string prediction_text(const plans::Job& job, const study::Prediction& prediction,
                            const TextStyle& style = {}, const std::string& next = "");

// The parts of it that other answers begin with: the question, and where the step goes.
std::string question_text(const plans::Job& job, const TextStyle& style = {});
std::string path_text(const study::Prediction& prediction, const TextStyle& style = {});

// "Next: offsim ...", what to ask next: in lines that a shell takes as one.
std::string next_text(const std::string& command, const TextStyle& style = {});

// One line of a comparison.
struct ComparisonRow {
  const plans::Job* job = nullptr;  // outlives the row
  study::Prediction prediction;
  std::optional<double> published_tflops{};  // compared with 6ND
  std::string published_from{};
  std::string refused{};  // why the plan does not run at all: the prediction is then empty
};

// The rows in the order given; those that do not fit or are refused stay, with the reason. Model,
// machine, batch, settings and plan are columns where they vary and said once where they do not;
// settings that are not the default and options that were given are shown, so that rows of
// different jobs differ. Left out: two files of one name in different folders. Requires: every row
// has its job.
std::string comparison_text(std::string_view title, const std::vector<ComparisonRow>& rows,
                            const TextStyle& style = {});

// Steps, hours and, with a price, dollars for training on `tokens` tokens. Requires: tokens > 0.
std::string budget_text(const plans::Job& job, const study::Prediction& prediction, double tokens,
                        const TextStyle& style = {});

}  // namespace offsim::report
