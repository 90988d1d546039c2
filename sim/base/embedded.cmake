# cmake -DSOURCE=... -DOUT=... -P embedded.cmake: writes the catalog's files and the translations as string literals of one C++ file.
file(GLOB_RECURSE files RELATIVE ${SOURCE} ${SOURCE}/hardware/*.yaml ${SOURCE}/models/*.json
     ${SOURCE}/scenarios/*.yaml ${SOURCE}/validation/*.yaml ${SOURCE}/sim/base/*.yaml)
list(SORT files)
set(table "")
foreach(path ${files})
  file(READ ${SOURCE}/${path} text)
  # Brackets and semicolons are special in lists, not in strings; a literal ends at )offsim" which no file holds.
  string(APPEND table "    {\"${path}\", R\"offsim(${text})offsim\"},\n")
endforeach()
file(WRITE ${OUT}.new "// Made by embedded.cmake.\n#include \"sim/base/embedded.h\"\n\nnamespace offsim {\n\n"
     "static constexpr EmbeddedFile kFiles[] = {\n${table}};\n\n"
     "std::span<const EmbeddedFile> embedded_files() { return kFiles; }\n\n}  // namespace offsim\n")
execute_process(COMMAND ${CMAKE_COMMAND} -E copy_if_different ${OUT}.new ${OUT})
