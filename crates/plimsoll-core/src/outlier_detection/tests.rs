//! Tests of the detector.
