// The report of `compare` as one HTML file that needs nothing else.
#pragma once

#include <string>
#include <vector>

#include "cli/report/comparison.h"
#include "cli/report/provenance.h"

namespace vcattn::cli::html {

/// No scripts, no fonts and no pictures from elsewhere; text from files is escaped.
std::string page(const std::vector<Comparison>& comparisons, const Provenance& source);

}  // namespace vcattn::cli::html
