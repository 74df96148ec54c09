//! Keys of a TOML file, each declared once: type, range, unit, default, documentation, and what
//! it takes for a change of the value to have effect. The rest follows from the declaration:
//! reading a file into a plain struct, errors that name file, line and remedy, the commented
//! default file, and the reference page.
//!
//! | module | contents |
//! |---|---|
//! | `key` | [`keys!`] declares a struct and its keys; [`Key`], [`Schema`] |
//! | `kind` | [`Kind`]: the values that a key accepts |
//! | `document` | [`Document`]: a file, with flags over it, read according to a schema |
//! | `suggest` | the key that an unknown name may have meant |
//! | `problem` | [`Problem`], [`Problems`]: messages with place and remedy |
//! | `source` | lines, columns and excerpts of a file |
//! | `print` | the default file and the reference |
//! | [`regular_file`] | opens regular files only |
//!
//! ```
//! use onrush_toml_keys::{Document, Schema, integer, keys, table};
//!
//! keys! {
//!     /// A server.
//!     #[derive(serde::Deserialize)]
//!     struct Server {
//!         /// Limits.
//!         limits: Limits = table(Limits::KEYS),
//!     }
//!
//!     /// Limits of a server.
//!     #[derive(serde::Deserialize)]
//!     struct Limits {
//!         /// Concurrent connections.
//!         connections: u32 = integer(1..=4096, "connections").default("64").on_reload("pool"),
//!     }
//! }
//! static SCHEMA: Schema = Schema { keys: Server::KEYS, hints: &[], head: "" };
//!
//! let mut document = Document::parse(&SCHEMA, SCHEMA.defaults(), "s.toml", "[limits]\n");
//! document.set("--set", "limits.connections", "12");
//! assert_eq!(document.read::<Server>().limits.connections, 12);
//!
//! let text = "[limits]\nconections = 7";
//! let document = Document::parse(&SCHEMA, SCHEMA.defaults(), "s.toml", text);
//! let problems = document.finish().unwrap_err().to_string();
//! assert!(problems.contains("s.toml:2:1: `limits.conections`: unknown key"));
//! assert!(problems.contains("did you mean `connections`?"));
//! ```

mod document;
mod key;
mod print;
mod problem;
pub mod regular_file;
mod source;
mod spelling;
mod suggest;

pub use document::{Document, MAX_FILE_LEN};
pub use key::{
    Absent, Applied, Key, Kind, Schema, Values, integer, list, number, parses, seconds, switch,
    table, tables, text, texts, values_of, word, word_or_list,
};
pub use problem::{Problem, Problems};
pub use toml::Value;
