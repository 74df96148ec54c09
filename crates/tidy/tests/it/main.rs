//! The house rules: for Rust files, for manifests and for documents.

mod documents;
mod imports;
mod lines;
mod manifests;
mod sources;
