//! An entry of the log and its forms: text with the time, a JSON object, lines with a priority, and
//! a message of the journal's protocol, and writing entries in one of these. An entry may have
//! several lines.

use std::io::{ErrorKind, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use log::{Level, Record};
use onrush_text::times::date_time;
use serde::Serialize;

/// The name of the program in the journal.
const IDENTIFIER: &str = "onrush";

/// An entry of the log.
#[derive(Debug)]
pub struct Entry {
    time: SystemTime,
    level: Level,
    /// The module that logs; `None` for a final message, which as text is shown without a head.
    module: Option<&'static str>,
    /// Without a line break at the end.
    text: String,
}

/// An entry as JSON.
#[derive(Serialize)]
struct Json<'a> {
    time: String,
    level: String,
    pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    module: Option<&'a str>,
    message: &'a str,
}

impl Entry {
    /// An entry of a module.
    pub fn new(level: Level, module: &'static str, mut text: String) -> Self {
        text.truncate(text.trim_end_matches('\n').len());
        Self { time: SystemTime::now(), level, module: Some(module), text }
    }

    /// A record of the `log` crate.
    pub fn of(record: &Record<'_>) -> Self {
        let module = record.module_path_static().unwrap_or(IDENTIFIER);
        Self::new(record.level(), module, record.args().to_string())
    }

    /// The final message of a process that fails.
    pub fn last(text: &str) -> Self {
        Self { module: None, ..Self::new(Level::Error, IDENTIFIER, text.to_owned()) }
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.text.len()
    }

    /// Appends the time in UTC, the level, the module and the text; of a final message the text.
    pub fn to_text(&self, into: &mut Vec<u8>) {
        // Writing to memory does not fail.
        let _ = match self.module {
            None => writeln!(into, "{}", self.text),
            Some(module) => {
                let (level, time) = (self.level, self.timestamp());
                writeln!(into, "{time} {level:<5} [{module}] {}", self.text)
            }
        };
    }

    /// Appends a line with a JSON object.
    pub fn to_json(&self, into: &mut Vec<u8>) {
        let json = Json {
            time: self.timestamp(),
            level: self.level.as_str().to_lowercase(),
            pid: std::process::id(),
            module: self.module,
            message: self.message(),
        };
        let _ = serde_json::to_writer(&mut *into, &json);
        into.push(b'\n');
    }

    /// Appends the text with its priority before each line (sd-daemon(3)).
    pub fn to_prioritized_lines(&self, into: &mut Vec<u8>) {
        for line in self.message().lines() {
            let _ = writeln!(into, "<{}>{line}", self.priority());
        }
    }

    /// The message in the journal's native protocol. A field with line breaks has its length
    /// before it, as eight bytes.
    pub fn to_journal(&self) -> Vec<u8> {
        let (priority, message) = (self.priority(), self.message());
        let fields = format!("PRIORITY={priority}\nSYSLOG_IDENTIFIER={IDENTIFIER}\nMESSAGE\n");
        let length = (message.len() as u64).to_le_bytes();
        [fields.as_bytes(), &length, message.as_bytes(), b"\n"].concat()
    }

    /// The text, without the program's name before final messages.
    fn message(&self) -> &str {
        self.text.strip_prefix("onrush: ").unwrap_or(&self.text)
    }

    /// The time as in RFC 3339, in milliseconds.
    fn timestamp(&self) -> String {
        let since = self.time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let second = date_time(since.as_secs());
        format!("{}.{:03}Z", second.trim_end_matches('Z'), since.subsec_millis())
    }

    /// As in syslog(3).
    fn priority(&self) -> u8 {
        match self.level {
            Level::Error => 3,
            Level::Warn => 4,
            Level::Info => 6,
            Level::Debug | Level::Trace => 7,
        }
    }
}

/// Writes entries in this form, until an error, for example of a full disk or a pipe without a
/// reader. Returns the number of entries written completely.
pub(super) fn write_lines(
    entries: &[Entry],
    mut to: impl Write,
    form: impl Fn(&Entry, &mut Vec<u8>),
) -> usize {
    let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(entries.len()));
    for entry in entries {
        form(entry, &mut bytes);
        ends.push(bytes.len());
    }
    let mut written = 0;
    while written < bytes.len() {
        match to.write(&bytes[written..]) {
            Ok(0) => break,
            Ok(more) => written += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    ends.partition_point(|end| *end <= written)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn entry(text: &str) -> Entry {
        let time = UNIX_EPOCH + Duration::from_millis(1_795_000_000_007);
        Entry { time, ..Entry::new(Level::Warn, "onrush::here", text.to_owned()) }
    }

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut bytes = Vec::new();
        write(&mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn text_has_time_level_and_module_and_a_final_message_has_none() {
        let text = |entry: Entry| written(|into| entry.to_text(into));
        let head = "2026-11-18T11:06:40.007Z";
        let plain = format!("{head} WARN  [onrush::here] first\nsecond\n");
        assert_eq!(text(entry("first\nsecond\n")), plain);
        assert_eq!(text(Entry::last("onrush: why\n  remedy\n")), "onrush: why\n  remedy\n");
    }

    #[test]
    fn json_is_one_line() {
        let json = written(|into| entry("a \"file\"\nsecond").to_json(into));
        assert_eq!(json.matches('\n').count(), 1, "{json}");
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        let expected = serde_json::json!({
            "time": "2026-11-18T11:06:40.007Z",
            "level": "warn",
            "pid": std::process::id(),
            "module": "onrush::here",
            "message": "a \"file\"\nsecond",
        });
        assert_eq!(value, expected);
        let last = written(|into| Entry::last("onrush: why\n").to_json(into));
        let last: serde_json::Value = serde_json::from_str(&last).unwrap();
        assert_eq!((&last["level"], &last["message"]), (&"error".into(), &"why".into()));
        assert_eq!(last.get("module"), None);
    }

    #[test]
    fn each_line_has_a_priority_without_the_journal() {
        let lines = |entry: Entry| written(|into| entry.to_prioritized_lines(into));
        assert_eq!(lines(entry("first\n  second")), "<4>first\n<4>  second\n");
        assert_eq!(lines(Entry::last("onrush: why\n  remedy\n")), "<3>why\n<3>  remedy\n");
        for (level, number) in [(Level::Info, 6), (Level::Debug, 7), (Level::Trace, 7)] {
            let entry = Entry::new(level, "onrush", "text".to_owned());
            assert_eq!(lines(entry), format!("<{number}>text\n"));
        }
    }

    #[test]
    fn a_message_of_the_journal_has_its_length() {
        let message = entry("one\ntwo").to_journal();
        let fields = b"PRIORITY=4\nSYSLOG_IDENTIFIER=onrush\nMESSAGE\n";
        assert_eq!(message, [fields, &b"\x07\0\0\0\0\0\0\0one\ntwo\n"[..]].concat());
        // In bytes, of which a character may have two.
        let message = entry("one\ntwö").to_journal();
        assert!(message.ends_with("\x08\0\0\0\0\0\0\0one\ntwö\n".as_bytes()), "{message:?}");
    }
}
