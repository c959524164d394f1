//! What a configuration file names and does not hold: files and variables of a target. Nothing is
//! opened here; the caller looks at them, and what is wrong with one is a problem of its line.

use std::path::Path;

use super::Problem;
use super::reader::{Reader, join};
use super::tree::{Key, Node, Value};
use crate::secret::{EnvSpec, PasswordSpec, Secret};
use crate::target::names_each;

/// The variable that names a repository, as for restic.
pub const VARIABLE: &str = "RESTIC_REPOSITORY";

/// Something that a target names.
#[derive(Clone, Copy, Debug)]
pub enum Named<'a> {
    /// What opens a repository, and the variables that it may come from.
    Opener(&'a PasswordSpec, &'a EnvSpec),
    /// A file of variables.
    EnvFile(&'a Path),
    /// A folder of variables.
    EnvDir(&'a Path),
    /// A file of certificate authorities.
    Authorities(&'a Path),
}

/// What is around a configuration file. Failures and faults are sentences that quote no secret.
pub trait Surroundings {
    /// [`VARIABLE`] in what a target's variables come from.
    ///
    /// # Errors
    /// The file or folder of variables that cannot be read.
    fn repository(&self, variables: &EnvSpec) -> Result<Option<String>, String>;

    /// What is wrong with something that a target names; nothing also when it was not looked at.
    fn fault(&self, named: Named<'_>) -> Option<String>;
}

/// No files and no variables, and nothing wrong with them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nothing;

impl Surroundings for Nothing {
    fn repository(&self, _: &EnvSpec) -> Result<Option<String>, String> {
        Ok(None)
    }

    fn fault(&self, _: Named<'_>) -> Option<String> {
        None
    }
}

/// Writes repositories that are found in variables into the tree, as if they stood in the file.
/// Problems are those of looking.
pub(super) fn supply(root: &mut Node, around: &dyn Surroundings) -> Vec<Problem> {
    let mut problems = Vec::new();
    let Some(Value::List(targets)) = child(root, "targets").map(|node| &mut node.value) else {
        return problems;
    };
    for (index, target) in targets.iter_mut().enumerate() {
        let Some(restic) = child(target, "restic") else { continue };
        if let Err((key, message)) = supply_one(restic, around) {
            let Node { line, column, .. } = *restic.get(key).unwrap_or(restic);
            let key = format!("targets[{index}].restic.{key}");
            problems.push(Problem { line, column, key, message });
        }
    }
    problems
}

/// The error is the key that is at fault, and what is wrong with it.
fn supply_one(restic: &mut Node, around: &dyn Surroundings) -> Result<(), (&'static str, String)> {
    if restic.get("repository").is_some() || restic.get("discover").is_some() {
        return Ok(());
    }
    let text = |node: Option<&Node>| match node.map(|node| &node.value) {
        Some(Value::Scalar(text)) => Some(text.clone()),
        _ => None,
    };
    let named = |key| text(restic.get(key)).filter(|text| !text.is_empty());
    let (env_dir, env_file) = (named("env_dir"), named("env_file"));
    let own = text(restic.get("env").and_then(|env| env.get(VARIABLE)));
    if env_dir.is_none() && env_file.is_none() && own.is_none() {
        return Ok(());
    }
    let spec = EnvSpec {
        env_dir: env_dir.map(Into::into),
        env_file: env_file.map(Into::into),
        env: own.map(|text| (VARIABLE.to_owned(), Secret::new(text))).into_iter().collect(),
    };
    let found = around.repository(&spec).map_err(|message| {
        // Which one it is, is seen by asking for one alone.
        let only = EnvSpec { env_dir: spec.env_dir.clone(), ..EnvSpec::default() };
        let is_dir = only.env_dir.is_some() && around.repository(&only).is_err();
        let key = match (is_dir, &spec.env_file) {
            (true, _) => "env_dir",
            (false, Some(_)) => "env_file",
            (false, None) => "env",
        };
        (key, message)
    })?;
    if let Some(repository) = found {
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

impl Reader {
    /// Problems of what a repository's section names. What is for each find of a search has no
    /// name yet.
    pub fn look_around(
        &mut self,
        node: &Node,
        path: &str,
        (password, env): (Option<&PasswordSpec>, &EnvSpec),
        around: &dyn Surroundings,
    ) {
        let is_one = |path: &&Path| !names_each(path);
        let mut all = Vec::new();
        let file = env.env_file.as_deref().filter(is_one);
        all.extend(file.map(|file| ("env_file", Named::EnvFile(file))));
        let folder = env.env_dir.as_deref().filter(is_one);
        all.extend(folder.map(|folder| ("env_dir", Named::EnvDir(folder))));
        let is_whole =
            file.is_some() == env.env_file.is_some() && folder.is_some() == env.env_dir.is_some();
        if let Some(password) = password {
            let key = match password {
                PasswordSpec::File(file) if is_one(&file.as_path()) => Some("password_file"),
                PasswordSpec::MasterKeyFile(file) if is_one(&file.as_path()) => {
                    Some("masterkey_file")
                }
                PasswordSpec::Variable(_) if is_whole => Some("password_env"),
                PasswordSpec::Inherit if is_whole => Some("env"),
                _ => None,
            };
            all.extend(key.map(|key| (key, Named::Opener(password, env))));
        }
        for (key, named) in all {
            if let Some(message) = around.fault(named) {
                match node.get(key) {
                    Some(node) => self.problem(node, &join(path, key), message),
                    None => self.problem(node, path, message),
                }
            }
        }
    }
}
