//! Repositories that a target's variables name instead of the file: `RESTIC_REPOSITORY` in its
//! `env`, `env_file` or `env_dir`. It opens no file; the caller looks into them.

use super::Problem;
use super::reader::join;
use super::tree::{Key, Node, Value};
use crate::secret::{EnvSpec, Secret};

/// The variable that names a repository, as for restic.
pub const VARIABLE: &str = "RESTIC_REPOSITORY";

/// Looks for [`VARIABLE`] in what a target's variables come from. A failure is a sentence.
pub type Look<'a> = &'a dyn Fn(&EnvSpec) -> Result<Option<String>, String>;

/// Writes into the tree what was found, as if it stood in the file. Problems are those of looking.
pub(super) fn supply(root: &mut Node, look: Look<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let Some(Value::List(targets)) = child(root, "targets").map(|node| &mut node.value) else {
        return problems;
    };
    for (index, target) in targets.iter_mut().enumerate() {
        let Some(restic) = child(target, "restic") else { continue };
        let path = format!("targets[{index}].restic");
        if let Err(message) = supply_one(restic, look) {
            let Node { line, column, .. } = *restic;
            problems.push(Problem { line, column, key: join(&path, "repository"), message });
        }
    }
    problems
}

fn supply_one(restic: &mut Node, look: Look<'_>) -> Result<(), String> {
    if child(restic, "repository").is_some() || child(restic, "discover").is_some() {
        return Ok(());
    }
    let mut scalar = |key| match child(restic, key).map(|node| &node.value) {
        Some(Value::Scalar(text)) if !text.is_empty() => Some(text.clone()),
        _ => None,
    };
    let (env_dir, env_file) = (scalar("env_dir"), scalar("env_file"));
    let own = child(restic, "env").and_then(|env| match child(env, VARIABLE).map(|it| &it.value) {
        Some(Value::Scalar(text)) => Some((VARIABLE.to_owned(), Secret::new(text.as_bytes()))),
        _ => None,
    });
    if env_dir.is_none() && env_file.is_none() && own.is_none() {
        return Ok(());
    }
    let spec = EnvSpec {
        env_dir: env_dir.map(Into::into),
        env_file: env_file.map(Into::into),
        env: own.into_iter().collect(),
    };
    if let Some(repository) = look(&spec)? {
        let Node { line, column, .. } = *restic;
        let key = Key { text: "repository".into(), line, column };
        let value = Node { line, column, value: Value::Scalar(repository) };
        if let Value::Map(pairs) = &mut restic.value {
            pairs.push((key, value));
        }
    }
    Ok(())
}

fn child<'a>(node: &'a mut Node, key: &str) -> Option<&'a mut Node> {
    match &mut node.value {
        Value::Map(pairs) => {
            pairs.iter_mut().find(|(found, _)| found.text == key).map(|(_, value)| value)
        }
        Value::Null | Value::Scalar(_) | Value::List(_) => None,
    }
}
