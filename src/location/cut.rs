//! The small cuts that repository strings need: Go's path cleaning, percent decoding, and taking
//! credentials away.

/// Go's `path.Clean`: the shortest path that means the same, `.` when nothing is left.
pub(super) fn clean(path: &str) -> String {
    let rooted = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => match parts.last() {
                Some(&last) if last != ".." => {
                    parts.pop();
                }
                // There is nothing above the root.
                Some(_) | None if rooted => {}
                Some(_) | None => parts.push(".."),
            },
            part => parts.push(part),
        }
    }
    match (rooted, parts.is_empty()) {
        (true, _) => format!("/{}", parts.join("/")),
        (false, true) => ".".into(),
        (false, false) => parts.join("/"),
    }
}

/// A URL's path as the text it stands for; none when that is no UTF-8 or an escape is broken.
pub(super) fn percent_decode(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        if *first == b'%' {
            let (escape, tail) = tail.split_at_checked(2)?;
            let digit = |at: usize| char::from(escape[at]).to_digit(16);
            out.push((digit(0)? * 16 + digit(1)?) as u8);
            rest = tail;
        } else {
            out.push(*first);
            rest = tail;
        }
    }
    String::from_utf8(out).ok()
}

/// The values of rclone's options, `name=value,name="va,l""ue",flag:path`: what they mean, and as
/// they stand.
pub(super) fn option_values(mut options: &str) -> Vec<String> {
    let mut values = Vec::new();
    while let Some(at) = options.find(['=', ',']) {
        let (is_named, rest) = (options[at..].starts_with('='), &options[at + 1..]);
        options = rest;
        let quote = rest.chars().next().filter(|c| is_named && matches!(c, '"' | '\''));
        let end = match quote {
            // Twice the quote is the quote itself.
            Some(quote) => {
                let text = rest[1..].replace(&String::from_iter([quote, quote]), "\0\0");
                text.find(quote).map_or(rest.len(), |at| at + 2)
            }
            None if is_named => rest.find([',', ':']).unwrap_or(rest.len()),
            None => continue,
        };
        let value = &rest[..end];
        options = &rest[end..];
        values.push(value.to_owned());
        if let Some(quote) = quote {
            let inner = value[1..].strip_suffix(quote).unwrap_or(&value[1..]);
            values.push(inner.to_owned());
            values.push(inner.replace(&String::from_iter([quote, quote]), &quote.to_string()));
        }
    }
    values
}

/// A remote of rclone without the options that may follow its name, `remote,pass=…:path`. Where
/// the options end is for rclone to say; the last colon is never too early.
pub(super) fn without_remote_options(rest: &str) -> String {
    let (mark, name) = match rest.strip_prefix(':') {
        Some(name) => (":", name),
        None => ("", rest),
    };
    match name.find([',', ':']) {
        Some(at) if name[at..].starts_with(',') => {
            let path = name[at..].rsplit_once(':').map_or("", |(_, path)| path);
            format!("{mark}{}:{path}", &name[..at])
        }
        Some(_) | None => rest.to_owned(),
    }
}
