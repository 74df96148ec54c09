//! A small WebTorrent tracker: it passes offers on to the other member, and answers back.

use std::collections::HashMap;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};
use tungstenite::{Message, WebSocket};

/// Members by their peer id.
type Members = Arc<Mutex<HashMap<String, Sender<String>>>>;

/// Starts a tracker that passes on what `change` makes of a message; returns its URL.
pub(crate) fn start(change: fn(String) -> String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}/", listener.local_addr().unwrap());
    let members = Members::default();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let members = Arc::clone(&members);
            thread::spawn(move || serve(&stream, &members, change));
        }
    });
    url
}

/// Serves a member until its connection ends.
fn serve(stream: &TcpStream, members: &Members, change: fn(String) -> String) {
    let mut socket = tungstenite::accept(stream.try_clone().unwrap()).unwrap();
    let (sender, to_member) = channel::<String>();
    // Frames of a server are not masked, so a second writer needs no state of the first.
    let writer = stream.try_clone().unwrap();
    thread::spawn(move || {
        let role = tungstenite::protocol::Role::Server;
        let mut socket = WebSocket::from_raw_socket(writer, role, None);
        for text in to_member {
            if socket.send(Message::text(text)).is_err() {
                break;
            }
        }
    });
    while let Ok(message) = socket.read() {
        let Message::Text(text) = message else { continue };
        let message: Value = serde_json::from_str(&text).unwrap();
        let peer = message["peer_id"].as_str().unwrap().to_owned();
        let mut members = members.lock().unwrap();
        members.insert(peer.clone(), sender.clone());
        let common = |key: &str, value: &Value, offer_id: &Value| {
            json!({
                "action": "announce", "info_hash": message["info_hash"], "peer_id": peer,
                key: value, "offer_id": offer_id,
            })
        };
        if let Some(to) = message["to_peer_id"].as_str() {
            let answer = common("answer", &message["answer"], &message["offer_id"]);
            members[to].send(change(answer.to_string())).unwrap();
            continue;
        }
        for offer in message["offers"].as_array().unwrap() {
            let passed = common("offer", &offer["offer"], &offer["offer_id"]);
            let (_, other) = members.iter().find(|(id, _)| **id != peer).unwrap();
            other.send(change(passed.to_string())).unwrap();
        }
        let counts = json!({ "action": "announce", "info_hash": message["info_hash"] });
        sender.send(counts.to_string()).unwrap();
    }
}
