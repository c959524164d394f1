// From the answers of Prometheus to Grafana's data frames, as its Prometheus data source makes them.
import { FieldType, toDataFrame } from '@grafana/data';

function legend(labels, format) {
  if (format !== '__auto') {
    // As the data source's server part does it: a label that is not there is nothing.
    return format.replace(/\{\{ *(\w+) *\}\}/g, (_, name) => labels[name] ?? '').trim();
  }
  const { __name__, ...others } = labels;
  return Object.keys(others).length
    ? `${__name__ ?? ''}{${Object.entries(others).map(([k, v]) => `${k}="${v}"`).join(', ')}}`
    : (__name__ ?? 'Value');
}

function series(target, results) {
  return results.map(({ metric, value, values }) => {
    const points = values ?? [value];
    const name = legend(metric, target.legendFormat);
    return toDataFrame({
      refId: target.refId,
      name,
      fields: [
        { name: 'Time', type: FieldType.time, values: points.map(([at]) => at * 1000) },
        {
          name: 'Value',
          type: FieldType.number,
          labels: metric,
          config: { displayNameFromDS: name },
          values: points.map(([, text]) => Number(text)),
        },
      ],
    });
  });
}

// One frame for each query: a column for each label that any row has, and the value.
function table(target, results, several) {
  const names = [...new Set(results.flatMap(({ metric }) => Object.keys(metric)))].sort();
  if (!results.length) {
    return [];
  }
  return [
    toDataFrame({
      refId: target.refId,
      fields: [
        { name: 'Time', type: FieldType.time, values: results.map(({ value }) => value[0] * 1000) },
        ...names.map((name) => ({
          name,
          type: FieldType.string,
          values: results.map(({ metric }) => metric[name] ?? ''),
        })),
        {
          name: several ? `Value #${target.refId}` : 'Value',
          type: FieldType.number,
          values: results.map(({ value }) => Number(value[1])),
        },
      ],
    }),
  ];
}

export function framesOf(panel, answers) {
  return panel.targets.flatMap((target, index) =>
    target.format === 'table'
      ? table(target, answers[index], panel.targets.length > 1)
      : series(target, answers[index])
  );
}
