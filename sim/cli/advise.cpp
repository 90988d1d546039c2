#include "sim/cli/advise.h"

#include <ostream>

#include "sim/cli/explain.h"
#include "sim/report/advice.h"
#include "sim/report/layout.h"

namespace offsim::cli {

int run_advise(const AdviseOptions& options, std::ostream& out, std::ostream& err) {
  const study::Catalog catalog = open_catalog(options.catalog);
  const Asked asked = ask_step(options, catalog, "advise", err);
  const plans::Job& job = asked.question.job;
  study::Advice advice;
  {
    ProgressLine line(options.terminal, err);
    advice = in_words_of(asked.imported, [&] {
      return study::advise(
          job, study::other_machines(catalog, job.machine),
          [&](std::size_t done, std::size_t all) { line.show("trying edit ", done, all); });
    });
  }
  warn_first(asked.imported, advice.now);
  if (write_all({{"--json", options.json,
                  [&](std::ostream& to) { to << report::advice_json(job, advice); }}},
                out)) {
    return 0;
  }
  const report::TextStyle& style = options.terminal.style;
  out << report::warnings_text(advice.now.warnings, style) << report::question_text(job, style)
      << (asked.imported.settings.empty() ? given_text(asked.question, advice.now.warnings, style)
                                          : settings_text(asked.imported, style))
      << (advice.now.fits() ? report::path_text(advice.now, style) : "")
      << report::advice_text(job, advice, style);
  const study::Tried* const best = advice.best();
  const plans::Job& next = best != nullptr ? best->job : job;
  const bool moved = best != nullptr && best->edit.changes_setting("hardware");
  const Named named{options.model, moved ? next.machine.name : options.hardware, options.catalog};
  out << report::next_text(
      best != nullptr ? predict_command(named, next) : compare_command(named, job), style);
  return 0;
}

}  // namespace offsim::cli
