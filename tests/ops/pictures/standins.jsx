// Small stand-ins for two types of panel that @grafana/ui does not have: a state timeline and a heat
// map. They take Grafana's fields, colours and words; the drawing is ours.
import React from 'react';
import { formattedValueToString } from '@grafana/data';

const AXIS = 22;
const NOTE = { position: 'absolute', right: 4, top: -26, fontSize: 10, opacity: 0.6 };

function Note() {
  return <div style={NOTE}>drawn by a stand-in</div>;
}

function Times({ range, left, width, top, theme }) {
  const hours = [];
  for (let at = Math.ceil(range.start / 3600) * 3600; at <= range.end; at += 3600) {
    const x = left + ((at - range.start) / (range.end - range.start)) * width;
    const text = new Date(at * 1000).toISOString().slice(11, 16);
    hours.push(
      <text key={at} x={x} y={top} textAnchor="middle" fontSize="11" fill={theme.colors.text.secondary}>
        {text}
      </text>
    );
  }
  return hours;
}

// Neighbours with one value become one stretch; a hole in the times is a hole.
function stretches(frame, step) {
  const [time, value] = frame.fields;
  const found = [];
  for (let index = 0; index < frame.length; index++) {
    const at = time.values[index];
    const last = found[found.length - 1];
    if (last && last.value === value.values[index] && at - last.end <= step * 1.5) {
      last.end = at;
    } else {
      if (last && at - last.end <= step * 1.5) {
        last.end = at;
      }
      found.push({ value: value.values[index], start: at, end: at });
    }
  }
  return found;
}

export function StateTimeline({ data, width, height, theme, range }) {
  const left = 190;
  const rows = data.slice(0, 20);
  const rowHeight = (height - AXIS) / rows.length;
  const plot = width - left - 8;
  const step = ((range.end - range.start) * 1000) / 200;
  const x = (at) => left + ((at / 1000 - range.start) / (range.end - range.start)) * plot;
  return (
    <div style={{ position: 'relative' }}>
      <Note />
      <svg width={width} height={height}>
        {rows.map((frame, row) => {
          const field = frame.fields[1];
          const top = row * rowHeight + rowHeight * 0.05;
          return (
            <g key={row}>
              <text
                x={left - 8}
                y={top + rowHeight / 2 + 4}
                textAnchor="end"
                fontSize="12"
                fill={theme.colors.text.primary}
              >
                {field.config.displayNameFromDS}
              </text>
              {stretches(frame, step).map(({ value, start, end }) => {
                const shown = field.display(value);
                const wide = x(end) - x(start);
                return (
                  <g key={start}>
                    <rect
                      x={x(start)}
                      y={top}
                      width={Math.max(wide, 1)}
                      height={rowHeight * 0.9}
                      fill={shown.color}
                      fillOpacity={0.8}
                    />
                    {wide > 60 && (
                      <text
                        x={x(start) + 4}
                        y={top + rowHeight / 2 + 4}
                        fontSize="11"
                        fill={theme.colors.getContrastText(shown.color)}
                      >
                        {formattedValueToString(shown)}
                      </text>
                    )}
                  </g>
                );
              })}
            </g>
          );
        })}
        <Times range={range} left={left} width={plot} top={height - 6} theme={theme} />
      </svg>
    </div>
  );
}

export function Heatmap({ panel, data, width, height, theme, range }) {
  const left = 60;
  const plot = width - left - 8;
  const bound = (frame) => Number(frame.fields[1].labels.le.replace('+Inf', 'Infinity'));
  const rows = [...data].sort((a, b) => bound(a) - bound(b));
  const rowHeight = (height - AXIS) / rows.length;
  const counts = rows.map((frame, row) =>
    frame.fields[1].values.map((value, index) =>
      Math.max(row ? value - rows[row - 1].fields[1].values[index] : value, 0)
    )
  );
  const most = Math.max(...counts.flat(), 1e-9);
  return (
    <div style={{ position: 'relative' }}>
      <Note />
      <svg width={width} height={height}>
        {rows.map((frame, row) => {
          const top = height - AXIS - (row + 1) * rowHeight;
          const times = frame.fields[0].values;
          return (
            <g key={row}>
              <text
                x={left - 6}
                y={top + 12}
                textAnchor="end"
                fontSize="11"
                fill={theme.colors.text.secondary}
              >
                {frame.fields[1].labels.le} {panel.fieldConfig.defaults.unit}
              </text>
              {counts[row].map((count, index) => (
                <rect
                  key={index}
                  x={left + ((times[index] / 1000 - range.start) / (range.end - range.start)) * plot}
                  y={top}
                  width={plot / times.length}
                  height={rowHeight - 1}
                  fill={theme.visualization.getColorByName('blue')}
                  fillOpacity={Math.sqrt(count / most)}
                />
              ))}
            </g>
          );
        })}
        <Times range={range} left={left} width={plot} top={height - 6} theme={theme} />
      </svg>
    </div>
  );
}
