//! Requests over HTTP that end their connection.

/// Each with the status of its reply and the label `reason` of its counter.
pub fn bad_requests() -> Vec<(String, u16, &'static str)> {
    let long = "a".repeat(9_000);
    vec![
        ("GET / HTTP/1.1\r\nno colon\r\n\r\n".to_owned(), 400, "malformed"),
        ("GET /a b HTTP/1.1\r\n\r\n".to_owned(), 400, "malformed"),
        ("GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\n".to_owned(), 400, "body"),
        ("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(), 400, "body"),
        (format!("GET /{long} HTTP/1.1\r\n\r\n"), 414, "target_length"),
        (format!("GET / HTTP/1.1\r\na: {long}\r\n\r\n"), 431, "head_length"),
        (format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(65)), 431, "head_length"),
        ("POST / HTTP/1.1\r\n\r\n".to_owned(), 405, "method"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), 505, "version"),
    ]
}
