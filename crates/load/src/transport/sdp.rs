//! Session descriptions (RFC 8866) of connections that have data channels alone (RFC 8841), as
//! browsers write them, and the messages that open a channel (RFC 8832).

use std::fmt::Write as _;

/// Candidates that are read from a description at most.
const MAX_CANDIDATES: usize = 32;
/// The type of a message that opens a channel, and of its reply.
const OPEN: u8 = 3;
const ACK: u8 = 2;
/// Bytes of a message that opens a channel, without its texts.
const OPEN_HEAD: usize = 12;

/// Who begins the encryption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setup {
    /// Either side: in an offer.
    Actpass,
    /// The side that this describes.
    Active,
    /// The other side.
    Passive,
}

/// A side of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// User name and password of ICE.
    pub ufrag: String,
    /// The password.
    pub password: String,
    /// SHA-256 of the certificate.
    pub fingerprint: [u8; 32],
    /// Who begins the encryption.
    pub setup: Setup,
    /// The candidates of ICE, as their attributes without the name.
    pub candidates: Vec<String>,
}

/// Why a text is no description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SdpError {
    /// An attribute is missing.
    #[error("a={0} is missing")]
    Missing(&'static str),
    /// An attribute has another form.
    #[error("a={0} is malformed")]
    Malformed(&'static str),
}

impl Description {
    /// The description as text.
    pub fn encode(&self) -> String {
        let Self { ufrag, password, fingerprint, setup, candidates } = self;
        let bytes: Vec<_> = fingerprint.iter().map(|byte| format!("{byte:02X}")).collect();
        let setup = match setup {
            Setup::Actpass => "actpass",
            Setup::Active => "active",
            Setup::Passive => "passive",
        };
        let mut text = format!(
            "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0\r\n\
             m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\nc=IN IP4 0.0.0.0\r\na=mid:0\r\n\
             a=ice-ufrag:{ufrag}\r\na=ice-pwd:{password}\r\na=fingerprint:sha-256 {}\r\n\
             a=setup:{setup}\r\na=sctp-port:5000\r\na=max-message-size:262144\r\n",
            bytes.join(":")
        );
        for candidate in candidates {
            write!(text, "a=candidate:{candidate}\r\n").expect("text takes everything");
        }
        text
    }

    /// Reads a description; what it does not need is skipped.
    ///
    /// # Errors
    /// When an attribute is missing or malformed.
    pub fn parse(text: &str) -> Result<Self, SdpError> {
        let attributes = || text.lines().filter_map(|line| line.trim_end().strip_prefix("a="));
        let attribute = |name: &'static str| {
            let mut values =
                attributes().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            values.next().ok_or(SdpError::Missing(name))
        };
        let word = |name: &'static str| {
            let word = attribute(name)?;
            let is_word = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_graphic());
            if is_word { Ok(word.to_owned()) } else { Err(SdpError::Malformed(name)) }
        };
        let setup = match attribute("setup")? {
            "actpass" => Setup::Actpass,
            "active" => Setup::Active,
            "passive" => Setup::Passive,
            _ => return Err(SdpError::Malformed("setup")),
        };
        let fingerprint = fingerprint(attribute("fingerprint")?);
        let candidates = attributes().filter_map(|line| line.strip_prefix("candidate:"));
        Ok(Self {
            ufrag: word("ice-ufrag")?,
            password: word("ice-pwd")?,
            fingerprint: fingerprint.ok_or(SdpError::Malformed("fingerprint"))?,
            setup,
            candidates: candidates.take(MAX_CANDIDATES).map(str::to_owned).collect(),
        })
    }
}

/// The value of `sha-256 00:11:...`.
fn fingerprint(text: &str) -> Option<[u8; 32]> {
    let (name, bytes) = text.split_once(' ')?;
    if !name.eq_ignore_ascii_case("sha-256") {
        return None;
    }
    let byte = |text: &str| match text.len() {
        2 if !text.starts_with('+') => u8::from_str_radix(text, 16).ok(),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = bytes.split(':').map(byte).collect();
    bytes?.try_into().ok()
}

/// A message about a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelMessage {
    /// Open it.
    Open,
    /// It was opened.
    Ack,
}

impl ChannelMessage {
    /// The message as bytes; an opened channel is reliable, ordered, and without a name.
    pub fn encode(self) -> Vec<u8> {
        match self {
            Self::Ack => vec![ACK],
            Self::Open => {
                let mut bytes = vec![0; OPEN_HEAD];
                bytes[0] = OPEN;
                bytes
            }
        }
    }

    /// Reads a message; `None` where it is another one, or malformed.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [ACK] => Some(Self::Ack),
            [OPEN, ..] if bytes.len() >= OPEN_HEAD => {
                let length = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
                let texts = usize::from(length(8)) + usize::from(length(10));
                (bytes.len() == OPEN_HEAD + texts).then_some(Self::Open)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An offer of Chromium 130, with shorter candidates.
    const CHROMIUM: &str = "v=0\r\no=- 4611731400430051336 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n\
        a=group:BUNDLE 0\r\na=extmap-allow-mixed\r\na=msid-semantic: WMS\r\n\
        m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\nc=IN IP4 0.0.0.0\r\n\
        a=candidate:1 1 udp 2113937151 x.local 5 typ host generation 0\r\na=ice-ufrag:4ZcD\r\n\
        a=ice-pwd:2/1muCWoOi3uLifh0NuRHlGA\r\na=ice-options:trickle\r\n\
        a=fingerprint:sha-256 75:74:5A:A6:A4:E5:52:F4:A7:67:4C:01:C7:EE:91:3F:21:3D:A2:E3:53:7B:\
        6F:30:86:F2:30:AA:65:FB:04:24\r\na=setup:actpass\r\na=mid:0\r\na=sctp-port:5000\r\n";

    #[test]
    fn descriptions_of_browsers_are_read() {
        let read = Description::parse(CHROMIUM).unwrap();
        assert_eq!((read.ufrag.as_str(), read.setup), ("4ZcD", Setup::Actpass));
        assert_eq!(read.password, "2/1muCWoOi3uLifh0NuRHlGA");
        assert_eq!((read.fingerprint[0], read.fingerprint[31]), (0x75, 0x24));
        assert_eq!(read.candidates, ["1 1 udp 2113937151 x.local 5 typ host generation 0"]);
    }

    #[test]
    fn missing_and_malformed_attributes_are_named() {
        for (from, to, error) in [
            ("a=setup", "a=setdown", SdpError::Missing("setup")),
            ("a=ice-pwd", "a=ice-password", SdpError::Missing("ice-pwd")),
            ("4ZcD", "4 cD", SdpError::Malformed("ice-ufrag")),
            ("actpass", "holdconn", SdpError::Malformed("setup")),
            ("sha-256", "sha-1", SdpError::Malformed("fingerprint")),
            ("75:74", "75:+4", SdpError::Malformed("fingerprint")),
            (":04:24", ":04", SdpError::Malformed("fingerprint")),
        ] {
            assert_eq!(Description::parse(&CHROMIUM.replace(from, to)), Err(error), "{from}");
        }
    }

    #[test]
    fn messages_about_channels_have_their_length() {
        let open = ChannelMessage::Open.encode();
        assert_eq!(ChannelMessage::parse(&open), Some(ChannelMessage::Open));
        assert_eq!(ChannelMessage::parse(&[&open[..], b"x"].concat()), None);
        assert_eq!(ChannelMessage::parse(&[3]), None);
        let named = [3, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, b'a', b'b'];
        assert_eq!(ChannelMessage::parse(&named), Some(ChannelMessage::Open));
        assert_eq!(ChannelMessage::parse(&ChannelMessage::Ack.encode()), Some(ChannelMessage::Ack));
        assert_eq!(ChannelMessage::parse(&[2, 0]), None);
    }

    proptest! {
        #[test]
        fn descriptions_are_the_same_when_read_again(
            words in prop::array::uniform2("[!-~]{1,30}"), fingerprint in any::<[u8; 32]>(),
            candidates in prop::collection::vec("[a-z0-9][ -~]{0,40}[a-z0-9]", 0..4),
            active in any::<bool>(),
        ) {
            let [ufrag, password] = words;
            let setup = if active { Setup::Active } else { Setup::Passive };
            let of = Description { ufrag, password, fingerprint, setup, candidates };
            prop_assert_eq!(Description::parse(&of.encode()), Ok(of));
        }
    }
}
