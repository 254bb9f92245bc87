// Boost.Asio, compiled once (BOOST_ASIO_SEPARATE_COMPILATION), so that its users stay quick to build.
#include <boost/asio/impl/src.hpp>
