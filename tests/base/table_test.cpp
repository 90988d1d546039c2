// Does a table line up?
#include "sim/base/table.h"

#include <gtest/gtest.h>

#include "sim/base/error.h"

namespace offsim::table_test {
namespace {

Table sample() {
  Table table({{"plan"}, {"step", Table::Align::kRight}, {"note"}});
  table.add_row({"megatrain", "21.4 s"});
  table.add_row({"zero2-offload", "9 s", "tight"});
  return table;
}

TEST(Table, AlignsColumnsWithoutTrailingBlanks) {
  EXPECT_EQ(sample().text(),
            "plan             step  note\n"
            "megatrain      21.4 s\n"
            "zero2-offload     9 s  tight\n");
}

TEST(Table, IndentsAndColoursOnlyWhenAsked) {
  Table table({{"a"}, {"b"}});
  table.add_row({"1", "2"});
  EXPECT_EQ(table.text({.indent = 2}), "  a  b\n  1  2\n");
  EXPECT_EQ(table.text({.colour = true}), "\x1b[1ma  b\x1b[0m\n1  2\n");
}

TEST(Table, NeedsNoHeader) {
  Table table({{""}, {"", Table::Align::kRight}});
  table.add_row({"GPU", "41.2 GiB"});
  table.add_row({"host", "231 GiB"});
  EXPECT_EQ(table.text(), "GPU   41.2 GiB\nhost   231 GiB\n");
}

TEST(Table, CountsCharactersNotBytes) {
  Table table({{""}, {""}});
  table.add_row({"×", "x"});
  table.add_row({"ab", "y"});
  EXPECT_EQ(table.text(), "×   x\nab  y\n");
}

TEST(Table, WideCharactersTakeTwoColumns) {
  Table table({{"时间去向"}, {"占比", Table::Align::kRight}});
  table.add_row({"缺页", "70 %"});
  table.add_row({"GPU 计算（x）", "忙碌"});
  EXPECT_EQ(table.text(),
            "时间去向       占比\n"
            "缺页           70 %\n"
            "GPU 计算（x）  忙碌\n");
}

TEST(Table, RefusesACellWithoutColumn) {
  Table table({{"a"}});
  EXPECT_THROW(table.add_row({"1", "2"}), InternalError);
}

}  // namespace
}  // namespace offsim::table_test
