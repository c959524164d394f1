//! What programs and services print that issue credentials, as plain values. Pure; nothing of it is
//! checked or shown here.

use quick_xml::events::Event;
use serde::Deserialize;

/// Credentials as somebody issued them.
#[derive(Deserialize, PartialEq, Eq)]
#[serde(rename_all = "PascalCase")]
pub struct Answer {
    /// Its name.
    pub access_key_id: String,
    /// What requests are signed with.
    pub secret_access_key: String,
    /// Goes with each request; none = it is no session's.
    pub session_token: Option<String>,
    /// When it ends, in the issuer's words; none = never.
    pub expiration: Option<String>,
}

impl Answer {
    /// What a program printed (docs.aws.amazon.com "Sourcing credentials with an external
    /// process"); `None` when it is no credential.
    pub fn of_process(printed: &[u8]) -> Option<Self> {
        serde_json::from_slice(printed).ok()
    }

    /// What the Security Token Service answered; `None` when there are no keys in it.
    pub fn of_service(body: &[u8]) -> Option<Self> {
        let element = |name| text_of(body, name);
        Some(Self {
            access_key_id: element("AccessKeyId")?,
            secret_access_key: element("SecretAccessKey")?,
            session_token: element("SessionToken"),
            expiration: element("Expiration"),
        })
    }
}

/// The text of the first element of this name.
fn text_of(body: &[u8], name: &str) -> Option<String> {
    let mut reader = quick_xml::Reader::from_reader(body);
    let mut found: Option<String> = None;
    loop {
        match (reader.read_event().ok()?, &mut found) {
            (Event::Start(start), None) if start.local_name().as_ref() == name.as_bytes() => {
                found = Some(String::new());
            }
            (Event::Text(part), Some(text)) => text.push_str(std::str::from_utf8(&part).ok()?),
            (Event::End(_), Some(_)) => return found,
            (Event::Eof, _) => return None,
            _ => {}
        }
    }
}
