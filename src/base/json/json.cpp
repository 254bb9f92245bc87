// Boost.JSON, compiled once; everybody else includes its declarations only.
#include <boost/json/src.hpp>
