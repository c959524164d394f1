// The alerts, recording rules and dashboards as a mixin, for those who build their monitoring with
// jsonnet (go-jsonnet, for std.parseYaml). Nothing is copied here: the files are those that are
// tested. Without jsonnet take alerts/rules.yml and dashboards/*.json as they are.
local rules = std.parseYaml(importstr '../../alerts/rules.yml');
local kind(name) = {
  groups: std.filter(
    function(group) std.length(group.rules) > 0,
    [group { rules: std.filter(function(rule) std.objectHas(rule, name), group.rules) } for group in rules.groups]
  ),
};
{
  prometheusAlerts+:: kind('alert'),
  prometheusRules+:: kind('record'),
  grafanaDashboards+:: {
    'exporter.json': import '../../dashboards/exporter.json',
    'file-locks.json': import '../../dashboards/file-locks.json',
    'overview.json': import '../../dashboards/overview.json',
    'target.json': import '../../dashboards/target.json',
  },
}
