//! Requests and responses of `/api/v1/blocks`.

use serde::{Deserialize, Serialize};

/// Sources to block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BlockRequest {
    /// An IPv4 or IPv6 address, or a prefix such as `192.0.2.0/24`.
    pub prefix: String,
    /// How long, in seconds; absent: until it is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// Reason: at most 200 characters, without control characters.
    #[serde(default)]
    pub reason: String,
    /// Accepts an IPv4 prefix shorter than /8 or an IPv6 prefix shorter than /16.
    #[serde(default)]
    pub force: bool,
}

/// A block to remove.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct UnblockRequest {
    /// The prefix of the block, or the address.
    pub prefix: String,
}

/// A block of sources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct BlockEntry {
    /// The prefix; that of a single address has all bits.
    pub prefix: String,
    /// When it was made or replaced, in seconds since 1970.
    pub since: u64,
    /// How long it lasts from then on, in seconds; absent: until it is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// Seconds until it ends; absent: until it is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends_in: Option<u64>,
    /// Number of requests refused since `counted_since`. A request counts at the longest prefix.
    pub refused: u64,
    /// When the count began, in seconds since 1970: when the sources were blocked, or when this
    /// process began to serve if that was later.
    pub counted_since: u64,
    /// Reason; may be empty.
    pub reason: String,
    /// User or address of its author.
    pub by: String,
}

/// All blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct BlockList {
    /// Whether blocks survive a restart; they do with a state directory.
    pub lasting: bool,
    /// The blocks, sorted by prefix.
    pub blocks: Vec<BlockEntry>,
}

/// Result of a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct BlockUpdate {
    /// The block.
    pub block: BlockEntry,
    /// The former block of the same prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaced: Option<BlockEntry>,
    /// Number of blocks now.
    pub blocks: u64,
    /// Whether it survives a restart; it does with a state directory.
    pub lasting: bool,
}
