//! Tests of load reports.
