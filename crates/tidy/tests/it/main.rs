//! The house rules: for Rust files, for manifests and for documents.

#![forbid(unsafe_code)]

mod documents;
mod imports;
mod manifests;
mod sources;
