// Draws a board as Grafana would, with the components that @grafana/ui has. State timelines and
// heat maps are not among them: what stands in for them here says so.
import React, { useEffect, useState } from 'react';
import { createRoot } from 'react-dom/client';
import {
  FieldConfigOptionsRegistry,
  applyFieldOverrides,
  cacheFieldDisplayNames,
  createTheme,
  dateTime,
  getDisplayValueAlignmentFactors,
  getFieldDisplayValues,
  renderTextPanelMarkdown,
  standardTransformers,
  standardTransformersRegistry,
  transformDataFrame,
} from '@grafana/data';
import {
  BarGauge,
  BigValue,
  GlobalStyles,
  PanelChrome,
  ThemeContext,
  TimeSeries,
  VizRepeater,
} from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import { Heatmap, StateTimeline } from './standins.jsx';
import { framesOf } from './frames.js';

const told = window.told;
const theme = createTheme({ colors: { mode: told.mode } });
const timeZone = 'utc';
const replaceVariables = (text) => text;
const range = { from: dateTime(told.start * 1000), to: dateTime(told.end * 1000) };
const timeRange = { ...range, raw: range };

standardTransformersRegistry.setInit(() =>
  ['mergeTransformer', 'organizeFieldsTransformer'].map((name) => {
    const made = standardTransformers[name];
    return { id: made.id, name, transformation: () => Promise.resolve(made), editor: () => null };
  })
);

// What a panel plugin registers: each option is taken as it stands.
function registryOf(panel) {
  const item = (id, path, isCustom) => ({
    id,
    path,
    isCustom,
    name: id,
    process: (value) => value,
    shouldApply: () => true,
  });
  const standard = ['displayName', 'unit', 'decimals', 'min', 'max', 'thresholds', 'mappings'];
  standard.push('noValue', 'color', 'links');
  const custom = new Set([...Object.keys(panel.fieldConfig.defaults.custom), 'width']);
  return new FieldConfigOptionsRegistry(() => [
    ...standard.map((name) => item(name, name, false)),
    ...[...custom].map((name) => item(`custom.${name}`, name, true)),
  ]);
}

function prepared(panel, frames) {
  // The first threshold has no value in JSON, and minus infinity in Grafana.
  const fieldConfig = JSON.parse(JSON.stringify(panel.fieldConfig));
  const configs = [
    fieldConfig.defaults,
    ...fieldConfig.overrides.flatMap(({ properties }) =>
      properties.filter(({ id }) => id === 'thresholds').map(({ value }) => ({ thresholds: value }))
    ),
  ];
  for (const { thresholds } of configs) {
    thresholds.steps[0].value = -Infinity;
  }
  // The names of columns are found anew, by the overrides.
  for (const field of frames.flatMap(({ fields }) => fields)) {
    delete field.state;
  }
  const made = applyFieldOverrides({
    data: frames,
    fieldConfig,
    fieldConfigRegistry: registryOf(panel),
    replaceVariables,
    theme,
    timeZone,
  });
  cacheFieldDisplayNames(made);
  return made;
}

function displayed(panel, data) {
  const values = getFieldDisplayValues({
    data,
    fieldConfig: panel.fieldConfig,
    reduceOptions: panel.options.reduceOptions,
    replaceVariables,
    theme,
    timeZone,
  });
  return values.map(({ display }) => display);
}

function Stat({ panel, data, width, height }) {
  const { options } = panel;
  return displayed(panel, data).map((value, index) => (
    <BigValue
      key={index}
      value={value}
      width={width}
      height={height}
      theme={theme}
      colorMode={options.colorMode}
      graphMode={options.graphMode}
      justifyMode={options.justifyMode}
      textMode={options.textMode}
    />
  ));
}

function Bars({ panel, data, width, height }) {
  const { options, fieldConfig } = panel;
  return (
    <VizRepeater
      source={data}
      getValues={() => displayed(panel, data)}
      getAlignmentFactors={(values) =>
        getDisplayValueAlignmentFactors(values.map((display) => ({ display })))
      }
      renderValue={({ value, width, height, alignmentFactors }) => (
        <BarGauge
          value={value}
          width={width}
          height={height}
          theme={theme}
          field={{ min: 0, ...data[0]?.fields[1].config, ...fieldConfig.defaults }}
          orientation={options.orientation}
          displayMode={options.displayMode}
          valueDisplayMode={options.valueMode}
          showUnfilled={options.showUnfilled}
          itemSpacing={10}
          alignmentFactors={alignmentFactors}
        />
      )}
      width={width}
      height={height}
      itemSpacing={10}
      minVizHeight={options.minVizHeight}
      maxVizHeight={options.maxVizHeight}
      orientation={options.orientation}
      autoGrid
    />
  );
}

function Rows({ panel, data, width, height }) {
  return (
    <TableNG
      data={data[0]}
      width={width}
      height={height}
      cellHeight={panel.options.cellHeight}
      initialSortBy={panel.options.sortBy}
      timeRange={timeRange}
      structureRev={1}
    />
  );
}

function Lines({ panel, data, width, height }) {
  return (
    <TimeSeries
      frames={data}
      timeRange={timeRange}
      timeZone={timeZone}
      structureRev={1}
      legend={panel.options.legend}
      options={panel.options}
      width={width}
      height={height}
    />
  );
}

function Advice({ panel }) {
  const html = renderTextPanelMarkdown(panel.options.content);
  return <div className="markdown-html" dangerouslySetInnerHTML={{ __html: html }} />;
}

const KINDS = {
  stat: Stat,
  bargauge: Bars,
  table: Rows,
  timeseries: Lines,
  text: Advice,
  'state-timeline': StateTimeline,
  heatmap: Heatmap,
};

function Body({ panel, width, height }) {
  const [data, setData] = useState(null);
  useEffect(() => {
    const frames = framesOf(panel, told.answers[panel.id] ?? []);
    const subscription = transformDataFrame(panel.transformations ?? [], frames, {
      interpolate: replaceVariables,
    }).subscribe((made) => setData(prepared(panel, made)));
    return () => subscription.unsubscribe();
  }, [panel]);
  if (data === null) {
    return null;
  }
  const empty = !data.some((frame) => frame.length);
  if (empty && !['text', 'stat'].includes(panel.type)) {
    const centred = { display: 'grid', placeItems: 'center', height, color: theme.colors.text.secondary };
    return <div style={centred}>{panel.fieldConfig.defaults.noValue}</div>;
  }
  const Kind = KINDS[panel.type];
  return <Kind panel={panel} data={data} width={width} height={height} theme={theme} range={told} />;
}

function Panel({ panel }) {
  const { x, y, w, h } = panel.gridPos;
  const column = (told.width - told.gap) / 24;
  const place = {
    position: 'absolute',
    left: told.gap + x * column,
    top: 44 + y * (told.cell + told.gap),
  };
  if (panel.type === 'row') {
    return <h3 style={{ ...place, fontSize: 15, margin: 0 }}>⌄ {panel.title}</h3>;
  }
  return (
    <div style={place}>
      <PanelChrome
        title={panel.title}
        description={panel.description}
        width={w * column - told.gap}
        height={h * (told.cell + told.gap) - told.gap}
      >
        {(width, height) => <Body panel={panel} width={width} height={height} />}
      </PanelChrome>
    </div>
  );
}

function Board() {
  const style = { position: 'relative', minHeight: '100vh', background: theme.colors.background.canvas };
  return (
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <div style={style}>
        <h2 style={{ position: 'absolute', left: told.gap, top: 8, fontSize: 18 }}>
          {told.board.title}
        </h2>
        {told.board.panels.map((panel) => (
          <Panel key={panel.id} panel={panel} />
        ))}
      </div>
    </ThemeContext.Provider>
  );
}

createRoot(document.getElementById('app')).render(<Board />);
