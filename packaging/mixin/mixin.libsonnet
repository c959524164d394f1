// The alerts, recording rules and dashboards as a mixin, for those who build their monitoring with
// jsonnet (go-jsonnet, for std.parseYaml). Nothing is copied here: the files are those that are
// tested. Parameters are those of alerts/README.md, and change the rules as alerts/render.py does:
//
//   (import 'mixin.libsonnet') + { _config+:: { jobName: 'locks', disabled: { LockContended: true } } }
//
// Unlike render.py it looks at names only: `promtool check rules --lint=all` tells whether the values
// were right. Without jsonnet take alerts/rules.yml and dashboards/*.json as they are.
local rules = std.parseYaml(importstr '../../alerts/rules.yml');
local table = import '../../alerts/parameters.json';
local alerts = [rule.alert for group in rules.groups for rule in group.rules if std.objectHas(rule, 'alert')];

// The configuration, if all its names are known.
local known(config) =
  local names = [name for name in std.objectFields(config) if !std.objectHas(table, name)];
  local ofAlerts = ['disabled', 'severityOverrides', 'forOverrides', 'keepFiringForOverrides'];
  local others = [
    map + '.' + name
    for map in ofAlerts
    for name in std.objectFields(config[map])
    if !std.member(alerts, name)
  ];
  assert names + others == [] : 'no such parameter: ' + std.join(', ', names + others);
  config;

local exprOf(rule, config) =
  local dropped = std.join(', ', table.droppedLabels.default);
  local named = std.foldl(
    function(expr, change) std.strReplace(expr, change[0], change[1]),
    [
      ['job="' + table.jobName.default + '"', 'job="' + config.jobName + '"'],
      ['instance, ' + dropped, std.join(', ', ['instance'] + config.droppedLabels)],
      ['(' + dropped + ')', '(' + std.join(', ', config.droppedLabels) + ')'],
    ],
    rule.expr
  );
  std.foldl(
    function(expr, site) std.strReplace(
      expr,
      std.strReplace(site.text, '@', std.toString(table[site.name].default)),
      std.strReplace(site.text, '@', std.toString(config[site.name]))
    ),
    [
      { name: name, text: text }
      for name in std.objectFields(table)
      for text in std.get(table[name], 'sites', [])
    ],
    named
  );

local alertOf(rule, config) = rule {
  [if std.objectHas(config.forOverrides, rule.alert) then 'for']: config.forOverrides[rule.alert],
  [if std.objectHas(config.keepFiringForOverrides, rule.alert) then 'keep_firing_for']:
    config.keepFiringForOverrides[rule.alert],
  labels+: {
    severity: std.get(config.severityOverrides, rule.alert, rule.labels.severity),
    [if std.objectHas(rule.labels, 'job') then 'job']: config.jobName,
  } + config.extraAlertLabels,
  annotations+: {
    runbook_url: std.strReplace(config.runbookUrlPattern, '%s', std.asciiLower(rule.alert)),
  },
};

// One rule, none, or two: sealed locks may have a severity of their own.
local rulesOf(rule, config) =
  local changed = rule { expr: exprOf(rule, config) };
  if !std.objectHas(rule, 'alert') then [changed]
  else if std.get(config.disabled, rule.alert, false) then []
  else
    local alert = alertOf(changed, config);
    local sealed = config.stuckSealedSeverity;
    local of(mode) = { expr: std.strReplace(alert.expr, 'mode!="exclusive"', 'mode="' + mode + '"') };
    if rule.alert != 'LockStuckShared' || alert.labels.severity == sealed then [alert]
    else [alert + of('shared'), alert + of('unknown') { labels+: { severity: sealed } }];

local groupsOf(kind, config) = {
  groups: std.filter(
    function(group) std.length(group.rules) > 0,
    [
      group {
        rules: std.flattenArrays([
          rulesOf(rule, known(config))
          for rule in group.rules
          if std.objectHas(rule, kind)
        ]),
      }
      for group in rules.groups
    ]
  ),
};

{
  _config:: { [name]: table[name].default for name in std.objectFields(table) },
  prometheusAlerts+:: groupsOf('alert', $._config),
  prometheusRules+:: groupsOf('record', $._config),
  grafanaDashboards+:: {
    'exporter.json': import '../../dashboards/exporter.json',
    'file-locks.json': import '../../dashboards/file-locks.json',
    'overview.json': import '../../dashboards/overview.json',
    'target.json': import '../../dashboards/target.json',
  },
}
