// libpq, loaded when the first gate, store or installation needs it: a process without PostgreSQL neither waits for the
// libraries behind it (OpenSSL, Kerberos, LDAP) nor holds their pages.
#pragma once

#include "backend/load_libpq.hpp"

#include <libpq-fe.h>

// What is used of it.
// clang-format off
#define FENCEGATE_LIBPQ(each) \
  each(PQclear) each(PQcmdStatus) each(PQcmdTuples) each(PQconnectPoll) each(PQconnectStartParams) \
  each(PQconnectdbParams) each(PQconsumeInput) each(PQenterPipelineMode) each(PQerrorMessage) each(PQexec) \
  each(PQfinish) each(PQflush) each(PQfname) each(PQfreemem) each(PQftype) each(PQgetResult) each(PQgetisnull) \
  each(PQgetlength) each(PQgetvalue) each(PQisBusy) each(PQnfields) each(PQnotifies) each(PQntuples) \
  each(PQpipelineSync) each(PQresultErrorField) each(PQresultErrorMessage) each(PQresultStatus) \
  each(PQsendQueryParams) each(PQsetNoticeProcessor) each(PQsetNoticeReceiver) each(PQsetSingleRowMode) \
  each(PQsetSSLKeyPassHook_OpenSSL) each(PQsetnonblocking) each(PQsocket) each(PQsslStruct) each(PQstatus) \
  each(PQtransactionStatus) each(PQuser)
// clang-format on

namespace fencegate::backend {

// Its functions under their own names.
struct libpq {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration
#define FENCEGATE_LIBPQ_MEMBER(name) decltype(&::name) name = nullptr;
  FENCEGATE_LIBPQ(FENCEGATE_LIBPQ_MEMBER)
#undef FENCEGATE_LIBPQ_MEMBER
  int (*SSL_pending)(const void* tls) = nullptr;  // of the OpenSSL that it uses; nullptr: of none
};

// REQUIRES: load_libpq() succeeded.
[[nodiscard]] const libpq& pq();

}  // namespace fencegate::backend
