// What the page uses of its libraries, which are taken as they are.
declare const library: any;
export default library;
export const Component: any;
export const createAnsiSequenceParser: any;
export const h: any;
export const lexer: any;
export const parsePatch: any;
export const render: any;
