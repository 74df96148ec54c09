//! The house rules: for Rust files, for manifests and for documents.

#![forbid(unsafe_code)]

mod documents;
mod imports;
mod lines;
mod manifests;
mod sources;
